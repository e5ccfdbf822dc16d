"""Games: pure rules by the author; matches, clocks, logs and replays by Onceward.

`rules` is what an author writes; `match` the referee, pure; `matches` what is stored, and `checks`
what must hold of that. Where a game is played, and who may sit there, is not known here.
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
