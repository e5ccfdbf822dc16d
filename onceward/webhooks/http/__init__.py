"""The HTTP client for webhooks: address checks, signatures, requests and responses.

Nothing here knows of timers, deliveries or storage.
"""
