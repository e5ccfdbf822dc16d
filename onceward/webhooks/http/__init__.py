"""The HTTP client for webhooks: address checks, signatures, requests and responses.

It is independent of timers, deliveries and storage.
"""
