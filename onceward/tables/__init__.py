"""Tables: named seats, waitlists and turns of players.

One head for each table says who sits where and what is on; it is written by all who change
anything there, so two who want the last seat exclude each other, whatever process they are in.
Those who wait stand in lanes; nobody is overtaken in a lane.
"""

from onceward.api.tables import Ending, Leader, Place, Policy, Rating, Seat, Table, Waiter
from onceward.tables.part import Seats, waiter_key
from onceward.tables.policy import KINDS, policy_of
from onceward.tables.protocols import Board, Change, Referee
from onceward.tables.records import CLOCK_DUE, PURGE_DUE, WAIT_DUE
from onceward.tables.rounds import CLOCK_WRITES, EXPIRE_WRITES, PURGE_WRITES

__all__ = [
    "CLOCK_DUE",
    "CLOCK_WRITES",
    "EXPIRE_WRITES",
    "KINDS",
    "PURGE_DUE",
    "PURGE_WRITES",
    "WAIT_DUE",
    "Board",
    "Change",
    "Ending",
    "Leader",
    "Place",
    "Policy",
    "Rating",
    "Referee",
    "Seat",
    "Seats",
    "Table",
    "Waiter",
    "policy_of",
    "waiter_key",
]
