"""Tables: named seats, waitlists and turns of players.

Each table has one head record with its seats and current game. Every change at the table writes the
head, so concurrent joins from any process conflict and only one of them gets the last seat. Waiting
players are queued in lanes; each lane is first in, first out.
"""

from onceward.api.tables import Ending, Leader, Place, Policy, Rating, Seat, Table, Waiter
from onceward.tables.part import Seats
from onceward.tables.policy import KINDS, policy_of
from onceward.tables.protocols import Board, Change, Referee
from onceward.tables.records import CLOCK_DUE, PURGE_DUE, WAIT_DUE
from onceward.tables.rounds import CLOCK_WRITES, EXPIRE_WRITES, PURGE_WRITES
from onceward.tables.waitlist import waiter_key

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
