"""Rooms: shared live state as maps and lists, with a log of every step.

A step is one or more operations that take effect together. Steps have sequence numbers without
gaps, in the order of their commits. The state of a room is a snapshot plus the log after it. Any
transaction may add a step, and the node that serves the room follows its log. Presences are kept
only in the memory of that node.
"""
