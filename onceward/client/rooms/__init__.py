"""Rooms as a client has them: copies that change at once, and the connection that keeps them."""
