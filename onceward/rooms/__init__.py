"""Rooms: state that people share live, as maps and lists, with a log of every step.

A step is one or several operations, taken as one. Steps have sequence numbers, without gaps, in
the order of their commits; the state is what the log says, from a snapshot on. Any transaction
may add a step: whoever serves a room follows its log. Presences are not here: they are in the
memory of whoever serves the room.
"""

from onceward.rooms.edits import Item
from onceward.rooms.part import Found, Rooms
from onceward.rooms.records import (
    LOG,
    PURGE_WRITES,
    ROOM,
    ROOM_DUE,
    Head,
    Info,
    Listed,
    head_key,
    info_key,
    log_partition,
)
from onceward.rooms.room import Entry, Greeting, Piece, Room, Tail, Taken
from onceward.rooms.schemas import Schemas, Shapes
from onceward.rooms.state import State

__all__ = [
    "LOG",
    "PURGE_WRITES",
    "ROOM",
    "ROOM_DUE",
    "Entry",
    "Found",
    "Greeting",
    "Head",
    "Info",
    "Item",
    "Listed",
    "Piece",
    "Room",
    "Rooms",
    "Schemas",
    "Shapes",
    "State",
    "Tail",
    "Taken",
    "head_key",
    "info_key",
    "log_partition",
]
