"""Games: the author writes pure rules; Onceward runs matches, clocks, logs and replays.

`rules` is the interface for authors, `match` the pure state machine, `part` the stored records and
`invariants` their checks. Games are independent of tables and seats.
"""

from onceward.api.matches import (
    MatchBegun,
    MatchEntry,
    MatchLate,
    MatchLeft,
    MatchMoved,
    MatchStopped,
    MatchView,
    Outcome,
)
from onceward.tables.games.match import Match, replay, view
from onceward.tables.games.part import MATCH_DUE, PURGE_WRITES, Game, Matches, match_key
from onceward.tables.games.rules import DRAW, Rules, drawn, shuffled, won

__all__ = [
    "DRAW",
    "MATCH_DUE",
    "PURGE_WRITES",
    "Game",
    "Match",
    "MatchBegun",
    "MatchEntry",
    "MatchLate",
    "MatchLeft",
    "MatchMoved",
    "MatchStopped",
    "MatchView",
    "Matches",
    "Outcome",
    "Rules",
    "drawn",
    "match_key",
    "replay",
    "shuffled",
    "view",
    "won",
]
