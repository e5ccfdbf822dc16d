"""Games: the author writes pure rules, and gets a referee, a clock, a log and replays.

`rules` is what an author writes; `match` the referee, pure; `matches` what is stored, and `checks`
what must hold of that. Where a game is played, and who may sit there, is not known here.
"""

from onceward.tables.games.match import (
    Begun,
    Entry,
    Late,
    Left,
    Match,
    Moved,
    Stopped,
    View,
    replay,
    view,
)
from onceward.tables.games.part import MATCH_DUE, PURGE_WRITES, Matches, match_key
from onceward.tables.games.rules import DRAW, Outcome, Rules, drawn, shuffled, won

__all__ = [
    "DRAW",
    "MATCH_DUE",
    "PURGE_WRITES",
    "Begun",
    "Entry",
    "Late",
    "Left",
    "Match",
    "Matches",
    "Moved",
    "Outcome",
    "Rules",
    "Stopped",
    "View",
    "drawn",
    "match_key",
    "replay",
    "shuffled",
    "view",
    "won",
]
