"""The policy of a table: all its rules as one validated value."""

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from onceward import limits
from onceward.api.arguments import in_milliseconds
from onceward.api.tables import Kind, Policy
from onceward.errors import BadInput

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
"""Default rules of each kind of table."""

_TIMES = tuple(name for name in Policy.__struct_fields__ if name.endswith("_ms"))


def from_seconds(given: Any) -> dict[str, Any]:
    """Convert the members of a policy from Python units (durations in seconds: `turn_s`) to those
    of JSON. Raises `bad_policy`."""
    try:
        return in_milliseconds(Policy, {} if given is None else given)
    except BadInput as error:
        raise _bad(error.message) from error


def policy_of(given: Mapping[str, Any] | None = None) -> Policy:
    """Build a policy from its JSON members, with defaults of its kind. Raises `bad_policy`."""
    given = given or {}
    kind = given.get("kind", "classic")
    if type(kind) is not str or kind not in KINDS:
        raise _bad(f"unknown kind {str(kind)[:50]!r}; use one of {', '.join(KINDS)}")
    try:
        policy = msgspec.convert({**KINDS[kind], **given}, Policy)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        told = str(error).replace("Object contains unknown field", "unknown rule")
        raise _bad(told) from error
    admit(policy)
    return policy


def admit(policy: Policy) -> None:
    """Raise `bad_policy` for an invalid policy."""
    try:  # a policy built in Python was not validated by msgspec
        msgspec.convert(msgspec.to_builtins(policy), Policy)
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError) as error:
        raise _bad(str(error)) from error
    _admit_names(policy.seats, "seats", limits.SEATS_MAX)
    _admit_names(policy.lanes, "lanes", limits.SEATS_LANES_MAX)
    _admit_names(policy.bots, "bots", limits.SEATS_MAX)
    if policy.bot_ms and len(policy.bots) < len(policy.seats) - 1:
        raise _bad(f"bots needs {len(policy.seats) - 1} names")
    if any("/" in name for name in policy.lanes):
        raise _bad("a lane's name must not contain '/', which separates tier and party size")
    for name in _TIMES:
        _admit_number(policy, name, 0, limits.SEATS_MS_MAX)
    for name in ("max_wins", "max_draws"):
        _admit_number(policy, name, 0, limits.SEATS_ROW_MAX)
    _admit_number(policy, "waitlist_max", 0, limits.SEATS_WAITLIST_MAX)
    _admit_number(policy, "spectators_max", 0, limits.SEATS_WAITLIST_MAX)
    _admit_number(policy, "party_max", 1, len(policy.seats))
    _admit_number(policy, "rating_first", 0, limits.SEATS_RATING_MAX)
    _admit_number(policy, "rating_step", 1, limits.SEATS_RATING_MAX)
    if policy.ladder:
        _admit_name(policy.ladder, "ladder")
    if any(not 0 <= tier <= limits.SEATS_RATING_MAX for tier in policy.tiers):
        raise _bad(f"tiers must be ratings of 0 to {limits.SEATS_RATING_MAX}")
    if list(policy.tiers) != sorted(set(policy.tiers)):
        raise _bad("tiers must be in ascending order")
    lanes = len(policy.lanes) * (len(policy.tiers) + 1) * policy.party_max
    if lanes > limits.SEATS_LANES_MAX:
        raise _bad(
            f"a table has at most {limits.SEATS_LANES_MAX} lanes, not {lanes}; "
            "each tier and party size has its own"
        )
    if policy.opens and policy.ends_empty:
        raise _bad(
            "a table that opens other tables has no seated players, so it cannot end when empty"
        )


def names_fit(name: Any, bytes_max: int) -> bool:
    """Whether a value is text that is valid as a name."""
    if type(name) is not str or not name or "\x00" in name:
        return False
    try:
        return len(name.encode()) <= bytes_max
    except UnicodeEncodeError:
        return False


def _admit_names(names: tuple[str, ...], what: str, most: int) -> None:
    if not 0 < len(names) <= most:
        raise _bad(f"{what} must have 1 to {most} names, not {len(names)}")
    for name in names:
        _admit_name(name, what)
    if len(set(names)) < len(names):
        raise _bad(f"{what} must have distinct names")


def _admit_name(name: str, what: str) -> None:
    if not names_fit(name, limits.SEATS_NAME_BYTES_MAX):
        raise _bad(f"{what}: a name must have 1 to {limits.SEATS_NAME_BYTES_MAX} bytes of text")


def _admit_number(policy: Policy, name: str, least: int, most: int) -> None:
    value = getattr(policy, name)
    if type(value) is not int or not least <= value <= most:
        raise _bad(f"{name} must be {least} to {most}, not {str(value)[:50]}")


def _bad(message: str) -> BadInput:
    return BadInput(message, code="bad_policy")


assert set(KINDS) == set(get_args(Kind))
