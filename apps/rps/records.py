"""What the game stores: its records, and where they stand.

========================= ============ ===================================================
partition                 sort key     what it holds
========================= ============ ===================================================
rps-player                number       who plays from a phone
rps-nick                  folded nick  whose nickname it is: a number
rps-thrown#player         opponent     that a throw waits for the opponent's; not which
rps-awaited#player        opponent     that an opponent waits; not for what
rps-score#player          opponent     games against one opponent; with `all`, of all
rps-top                   rank#player  players with a win, the best first
rps-consent               number       whether a phone has opted out of texts
========================= ============ ===================================================

What was thrown is known to the match alone, which is at the place of its two players (`place`).

A player is known by an id that is made with the nickname and goes with it. So whoever takes
over a nickname, or comes back to it, has no part in the games of the one before.

The record of a player is the head of all that is listed for it: whoever adds a throw or a score
writes it, too, so that nobody who has read a list and the head commits an answer that lacks it.
"""

import msgspec

from onceward import keys

_WINS_MAX = 10**9
ALL = "all"
"""Sorts behind all ids, which have no small letters."""


class Line(msgspec.Struct, frozen=True):
    """How a phone is reached."""

    phone: str
    via: str
    """The provider's name."""
    ours: str = ""
    """The number that was texted, from which replies come."""

    @property
    def is_phone(self) -> bool:
        """Whether this is a phone number, for which the rules of carriers hold."""
        return self.phone.startswith("+")


class Player(msgspec.Struct, frozen=True):
    """Who has a nickname."""

    id: str
    nick: str
    line: Line


class Thrown(msgspec.Struct, frozen=True):
    """A throw waits for another one."""

    at: str
    """The opponent's nickname."""
    phone: str


class Awaited(msgspec.Struct, frozen=True):
    """Someone waits for a throw."""

    nick: str
    phone: str


class Score(msgspec.Struct, frozen=True):
    """Games that are over."""

    wins: int = 0
    losses: int = 0
    ties: int = 0
    nick: str = ""
    """Against whom, as they were called the last time."""


class Consent(msgspec.Struct, frozen=True):
    """Whether a phone may be sent texts; a phone without this record may."""

    out: bool
    at_ms: int
    """Of the last STOP or START, or of the provider's refusal."""


def consent_key(phone: str) -> keys.Key:
    return "rps-consent", phone


def player_key(phone: str) -> keys.Key:
    return "rps-player", phone


def nick_key(folded: str) -> keys.Key:
    return "rps-nick", keys.join(folded)


def thrown_by(player: str) -> str:
    """The partition of a player's throws that wait."""
    return keys.join("rps-thrown", player)


def awaiting(player: str) -> str:
    """The partition of those who wait for a player."""
    return keys.join("rps-awaited", player)


def place(one: str, other: str) -> str:
    """Where two players have their match."""
    return keys.join("rps", *sorted((one, other)))


def scores_of(player: str) -> str:
    """The partition of a player's scores."""
    return keys.join("rps-score", player)


TOP = "rps-top"


def top_key(wins: int, player: str) -> keys.Key:
    """The place of a player among all: more wins come first, and of equal ones the older."""
    return TOP, keys.join(_WINS_MAX - min(wins, _WINS_MAX), player)


def top_wins(sort: str) -> int:
    """How many games a player has won, by the sort key of its place."""
    return _WINS_MAX - int(keys.split(sort)[0])
