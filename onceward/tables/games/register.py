"""Declaration of games: kinds of records and due entries of turns."""

from typing import Any

from onceward.parts import Due, Kind, Part
from onceward.tables.games import MATCH_DUE, PURGE_WRITES, Match, MatchEntry, Matches
from onceward.tables.games.invariants import RULES

_entry: Any = MatchEntry

PART = Part(
    kinds=(
        Kind("match#{id}", "head", Match, "the current state of a match"),
        Kind("match#{id}", "log#{number}", _entry, "an entry of the log of a match"),
        Kind("playing", "{place}", str, "the running match of a table"),
    ),
    rules=RULES,
    due=(Due(MATCH_DUE, Matches.act_on_due, PURGE_WRITES, Matches.read_to_fall_due),),
    make=lambda made: Matches(made.ids, made.slots),
)
