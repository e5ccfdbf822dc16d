"""Calls to endpoints of others: where they may go, how they are signed, sent and judged.

Nothing here knows of timers, deliveries or storage.
"""
