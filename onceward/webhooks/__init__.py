"""Outgoing webhook calls: timers, endpoints, delivery with retries, signatures and host limits."""
