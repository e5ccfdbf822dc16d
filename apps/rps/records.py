"""Records of the game and their keys.

    partition                 sort key     contents
    rps-player                number       the player of a phone
    rps-nick                  folded nick  the number of a nickname's owner
    rps-thrown#player         opponent     a waiting throw, without the play
    rps-awaited#player        opponent     an opponent who waits, without the play
    rps-score#player          opponent     games against one opponent; with `all`, of all
    rps-top                   rank#player  players with a win, the best first
    rps-consent               number       whether a phone has opted out of texts

Only the match has the plays; it is at the place of its two players (`place`).

A player has an id, which is created and removed with the nickname. So the next owner of a nickname
has no part in the games of the previous one.

The record of a player is the head of its lists. Every added throw or score writes it, so that a
transaction that has read a list and the head conflicts with changes of that list.
"""

import msgspec

from onceward import keys

_WINS_MAX = 10**9
ALL = "all"
"""Sorts after all ids, which have no small letters."""


class Line(msgspec.Struct, frozen=True):
    """How a phone is reached."""

    phone: str
    via: str
    """The provider's name."""
    ours: str = ""
    """The number that was texted, from which replies are sent."""

    @property
    def is_phone(self) -> bool:
        """Whether this is a phone number, to which the rules of carriers apply."""
        return self.phone.startswith("+")


class Player(msgspec.Struct, frozen=True):
    """A player with a nickname."""

    id: str
    nick: str
    line: Line


class Thrown(msgspec.Struct, frozen=True):
    """A throw that waits for the opponent's."""

    at: str
    """The opponent's nickname."""
    phone: str


class Awaited(msgspec.Struct, frozen=True):
    """An opponent who waits for a throw."""

    nick: str
    phone: str


class Score(msgspec.Struct, frozen=True):
    """Counts of finished games."""

    wins: int = 0
    losses: int = 0
    ties: int = 0
    nick: str = ""
    """The last nickname of the opponent."""


class Consent(msgspec.Struct, frozen=True):
    """Whether a phone may receive texts; without a record it may."""

    out: bool
    at_ms: int
    """The time of the last STOP or START, or of the provider's rejection."""


def consent_key(phone: str) -> keys.Key:
    return "rps-consent", phone


def player_key(phone: str) -> keys.Key:
    return "rps-player", phone


def nick_key(folded: str) -> keys.Key:
    return "rps-nick", keys.join(folded)


def thrown_by(player: str) -> str:
    """The partition of a player's waiting throws."""
    return keys.join("rps-thrown", player)


def awaiting(player: str) -> str:
    """The partition of opponents who wait for a player."""
    return keys.join("rps-awaited", player)


def place(one: str, other: str) -> str:
    """The place of the match of two players."""
    return keys.join("rps", *sorted((one, other)))


def scores_of(player: str) -> str:
    """The partition of a player's scores."""
    return keys.join("rps-score", player)


TOP = "rps-top"


def top_key(wins: int, player: str) -> keys.Key:
    """The key of a player in the ranking: more wins come first, then older players."""
    return TOP, keys.join(_WINS_MAX - min(wins, _WINS_MAX), player)


def top_wins(sort: str) -> int:
    """The number of won games, from the sort key in the ranking."""
    return _WINS_MAX - int(keys.split(sort)[0])
