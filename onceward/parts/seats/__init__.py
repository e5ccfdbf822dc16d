"""Tables with named seats and a line: who plays, who waits, and who is next.

One head for each table says who sits where and what is on; it is written by all who change
anything there, so two who want the last seat exclude each other, whatever process they are in.
Those who wait stand in lanes; nobody is overtaken in a lane.
"""

from onceward.parts.seats.policy import KINDS, Policy, policy_of
from onceward.parts.seats.records import Board, Change, Ending, Place, Rating, Referee, Seat, Table

__all__ = [
    "KINDS",
    "Board",
    "Change",
    "Ending",
    "Place",
    "Policy",
    "Rating",
    "Referee",
    "Seat",
    "Table",
    "policy_of",
]
