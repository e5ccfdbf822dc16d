"""Rooms while they are in use: who is in them, what they say, and to whom."""
