"""The policy of a table: all its rules as one value, which is checked before anyone sits down."""

from typing import Any, Literal, get_args

import msgspec

from onceward import limits
from onceward.errors import BadInput

Kind = Literal["classic", "speed", "ranked"]
Draw = Literal["swap", "stay", "back"]
Then = Literal["back", "leave"]


class Policy(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The rules of a table. Times are milliseconds, and 0 turns a rule off."""

    kind: Kind = "classic"
    """Which of the usual policies this one began as; see `KINDS`."""
    seats: tuple[str, ...] = ("X", "O")
    """The markers. Who comes gets the first one that is free."""
    max_wins: int = 5
    """So many wins in a row, and the winner goes to the back, too, if anyone waits."""
    draw: Draw = "swap"
    """After a draw all stay and the markers move on by one, or all stay as they are, or all go
    to the back if anyone waits."""
    max_draws: int = 0
    """So many draws in a row, and all go to the back if anyone waits."""
    loser: Then = "back"
    """Where who has lost goes, if anyone waits: to the back of the line, or away."""
    idle: Then = "back"
    """Where who has run out of time goes."""
    lanes: tuple[str, ...] = ("main",)
    """The lanes of the line, those of higher priority first. Who names none is in the last."""
    tiers: tuple[int, ...] = ()
    """Ratings from which on one is in the next tier. Each tier has a line of its own; those in
    one sit with those in another when they have waited long enough."""
    widen_ms: int = 30_000
    """One more tier to either side for each time that one has waited so long."""
    rated: bool = False
    """Whether results change the ratings of those who played."""
    ladder: str = ""
    """Where ratings are kept, shared by all tables that name it; the name of the game if empty."""
    rating_first: int = 1_200
    rating_step: int = 32
    """The most that one game changes a rating by (K in Elo's formula)."""
    party_max: int = 1
    """How many may come as one party, who sit down at the same time or not at all."""
    turn_ms: int = 60_000
    """So long one may think about a move; then the game is lost."""
    idle_ms: int = 120_000
    """So long one may do nothing in a game that has no turns."""
    warn_ms: int = 15_000
    """So long before either of them ends, one is warned."""
    grace_ms: int = 30_000
    """So long a seat is kept for one who has lost the connection."""
    waiting_ms: int = 300_000
    """Who waits and gives no sign of life for so long loses the place."""
    ready_ms: int = 0
    """So long everyone has to say that they are ready, before a game begins."""
    rematch_ms: int = 0
    """The same where those who play are the same as before."""
    break_ms: int = 0
    """So long the end of a game is shown, before the next one begins."""
    bot_ms: int = 0
    """After so long a bot takes an empty seat, if a person sits at the table."""
    bots: tuple[str, ...] = ("bot",)
    """Their names, the first one that is not at the table."""
    line_max: int = limits.SEATS_LINE_MAX
    """How many may wait."""
    waitlist_names: bool = True
    """Whether players see the names of those who wait, or positions only."""
    spectators_max: int = 10_000
    opens: bool = False
    """Nobody sits here: as soon as enough people wait who fit, a table is opened for them."""
    ends_empty: bool = False
    """Whether it closes when nobody sits there any more, as those do that were opened."""
    game_ms: int = 60_000
    """How long a game may take, for the first estimates of a wait; then measured ones count."""


KINDS: dict[str, dict[str, Any]] = {
    "classic": {},
    "speed": {
        "turn_ms": 10_000,
        "idle_ms": 20_000,
        "warn_ms": 4_000,
        "grace_ms": 10_000,
        "game_ms": 30_000,
        "idle": "leave",
    },
    "ranked": {"rated": True, "tiers": (1_000, 1_200, 1_400, 1_600), "turn_ms": 30_000},
}
"""What the kinds of tables say where nothing else is said."""

_TIMES = tuple(name for name in Policy.__struct_fields__ if name.endswith("_ms"))


def policy_of(given: dict[str, Any] | None = None) -> Policy:
    """A policy from its members as JSON has them; what is missing is as its kind says. Raises
    `bad_policy`."""
    given = given or {}
    kind = given.get("kind", "classic")
    if type(kind) is not str or kind not in KINDS:
        raise _bad(f"kind is one of {', '.join(KINDS)}, not {str(kind)[:50]!r}")
    try:
        policy = msgspec.convert({**KINDS[kind], **given}, Policy)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        told = str(error).replace("Object contains unknown field", "there is no rule")
        raise _bad(told) from error
    admit(policy)
    return policy


def admit(policy: Policy) -> None:
    """Raise `bad_policy` for what no table can go by."""
    try:  # one that was made in a program may say anything, and has to be read again
        msgspec.convert(msgspec.to_builtins(policy), Policy)
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError) as error:
        raise _bad(str(error)) from error
    _admit_names(policy.seats, "seats", limits.SEATS_MAX)
    _admit_names(policy.lanes, "lanes", limits.SEATS_LANES_MAX)
    _admit_names(policy.bots, "bots", limits.SEATS_MAX)
    if policy.bot_ms and len(policy.bots) < len(policy.seats) - 1:
        raise _bad(f"bots need names for {len(policy.seats) - 1} of them")
    if any("/" in name for name in policy.lanes):
        raise _bad("lanes have no / in their names: tier and size of party stand behind one")
    for name in _TIMES:
        _admit_number(policy, name, 0, limits.SEATS_MS_MAX)
    for name in ("max_wins", "max_draws"):
        _admit_number(policy, name, 0, limits.SEATS_ROW_MAX)
    _admit_number(policy, "line_max", 0, limits.SEATS_LINE_MAX)
    _admit_number(policy, "spectators_max", 0, limits.SEATS_LINE_MAX)
    _admit_number(policy, "party_max", 1, len(policy.seats))
    _admit_number(policy, "rating_first", 0, limits.SEATS_RATING_MAX)
    _admit_number(policy, "rating_step", 1, limits.SEATS_RATING_MAX)
    if policy.ladder:
        _admit_name(policy.ladder, "ladder")
    if any(not 0 <= tier <= limits.SEATS_RATING_MAX for tier in policy.tiers):
        raise _bad(f"tiers are ratings of 0 to {limits.SEATS_RATING_MAX}")
    if list(policy.tiers) != sorted(set(policy.tiers)):
        raise _bad("tiers go up: each begins at a higher rating than the one before")
    lanes = len(policy.lanes) * (len(policy.tiers) + 1) * policy.party_max
    if lanes > limits.SEATS_LANES_MAX:
        raise _bad(
            f"lanes for each tier and size of party are at most {limits.SEATS_LANES_MAX} together, "
            f"not {lanes}"
        )
    if policy.opens and policy.ends_empty:
        raise _bad("a table that opens others has nobody seated: it cannot end when empty")


def names_fit(name: Any, bytes_max: int) -> bool:
    """Whether it is text that can be a name: in a key, and for people."""
    if type(name) is not str or not name or "\x00" in name:
        return False
    try:
        return len(name.encode()) <= bytes_max
    except UnicodeEncodeError:
        return False


def _admit_names(names: tuple[str, ...], what: str, most: int) -> None:
    if not 0 < len(names) <= most:
        raise _bad(f"{what} are 1 to {most} names, not {len(names)}")
    for name in names:
        _admit_name(name, what)
    if len(set(names)) < len(names):
        raise _bad(f"{what} have names that are there once")


def _admit_name(name: str, what: str) -> None:
    if not names_fit(name, limits.SEATS_NAME_BYTES_MAX):
        raise _bad(f"{what}: a name has 1 to {limits.SEATS_NAME_BYTES_MAX} bytes of text")


def _admit_number(policy: Policy, name: str, least: int, most: int) -> None:
    value = getattr(policy, name)
    if type(value) is not int or not least <= value <= most:
        raise _bad(f"{name} is {least} to {most}, not {str(value)[:50]}")


def _bad(message: str) -> BadInput:
    return BadInput(message, code="bad_policy")


assert set(KINDS) == set(get_args(Kind))
