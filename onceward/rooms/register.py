"""Declaration of rooms: kinds of records and due entries of deleted rooms."""

from onceward.parts import Attribute, Due, Kind, Part
from onceward.rooms.invariants import RULES
from onceward.rooms.owners import Address
from onceward.rooms.part import Rooms
from onceward.rooms.records import PURGE_WRITES, ROOM_DUE, Head, Info, Listed
from onceward.rooms.room import Entry, Piece
from onceward.rooms.session import insist

PART = Part(
    kinds=(
        Kind(
            "rooms", "{id}", Listed, "a room in the list of all rooms, with its searchable fields"
        ),
        Kind("room#{id}", "info", Info, "the settings of a room"),
        Kind(
            "room#{id}",
            "head",
            Head,
            "the epoch, sequence number, snapshots and revision of a room",
        ),
        Kind("roomlog#{id}#{epoch}", "{number}", Entry, "steps of a room up to that number"),
        Kind("roomsnap#{id}#{epoch}", "{number}#{piece}", Piece, "the state of a room at a number"),
        Kind("hub", "{node}", Address, "the address of a node's rooms, for other nodes"),
    ),
    rules=RULES,
    due=(Due(ROOM_DUE, Rooms.purge, PURGE_WRITES),),
    make=lambda made: Rooms(made.ids, made.slots),
    attribute=Attribute("rooms", Rooms),
    guard=lambda node, caller, action, id_: insist(caller, action, id_),
)
