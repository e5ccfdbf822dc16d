"""Rooms: shared live state as maps and lists, with a log of every step.

A step is one or several operations, taken as one. Steps have sequence numbers, without gaps, in
the order of their commits; the state is what the log says, from a snapshot on. Any transaction
may add a step: whoever serves a room follows its log. Presences are not here: they are in the
memory of whoever serves the room.
"""
