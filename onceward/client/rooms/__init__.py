"""The Python client for rooms: local replicas with optimistic updates, over WebSocket."""
