"""Rooms: state that people share live, as maps and lists, with a log of every step."""
