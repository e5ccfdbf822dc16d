"""Rooms as a client has them: a copy that changes at once, and the connection that keeps it true."""
