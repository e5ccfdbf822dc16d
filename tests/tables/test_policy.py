"""Policies: what is said counts, what is not said is as its kind says, nonsense is refused."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onceward import limits
from onceward.api.tables import Policy
from onceward.errors import BadInput
from onceward.tables.policy import KINDS, admit, names_fit, policy_of

GUIDE = (Path(__file__).parents[2] / "docs" / "seats.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| (.+?) \|", re.MULTILINE)


def documented() -> dict[str, Any]:
    """What the guide says of the rules about which nothing is said; None: nothing, or no."""
    table = GUIDE.partition("## The policy")[2].partition("\n\n`speed`")[0]
    found: dict[str, Any] = {}
    for row in ROW.finditer(table):
        names = re.findall(r"\w+", row[1])
        told = [_value(value) for value in re.split(r" and |, (?=`)", row[2])]
        found |= dict(zip(names, told if len(told) > 1 else told * len(names), strict=True))
    return found


def _value(told: str) -> Any:
    if told in ("no", "none"):
        return None
    if told == "yes":
        return True
    quoted = told.strip("`")
    if quoted == told:
        return int(told.replace(",", ""))
    return json.loads(quoted) if quoted.startswith("[") else quoted


def test_what_is_not_said_is_as_the_guide_says() -> None:
    usual = msgspec.structs.asdict(policy_of())
    told = {name: list(value) if type(value) is tuple else value for name, value in usual.items()}
    assert {name: value or None for name, value in told.items()} == {
        name: value or None for name, value in documented().items()
    }


def test_a_kind_says_what_the_guide_says() -> None:
    assert policy_of({"kind": "speed"}) == Policy(
        kind="speed",
        turn_ms=10_000,
        idle_ms=20_000,
        warn_ms=4_000,
        grace_ms=10_000,
        game_ms=30_000,
        idle="leave",
    )
    assert policy_of({"kind": "ranked"}) == Policy(
        kind="ranked", rated=True, tiers=(1_000, 1_200, 1_400, 1_600), turn_ms=30_000
    )


def test_a_policy_is_what_its_kind_says_but_for_what_is_given() -> None:
    assert policy_of() == Policy()
    assert policy_of({"kind": "speed"}).turn_ms == 10_000
    assert policy_of({"kind": "speed", "turn_ms": 5_000}).turn_ms == 5_000
    assert policy_of({"kind": "ranked"}).rated


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_is_the_same_after_a_journey_as_json(kind: str) -> None:
    policy = policy_of({"kind": kind, "seats": ["red", "blue", "green"], "party_max": 2})
    assert msgspec.json.decode(msgspec.json.encode(policy), type=Policy) == policy


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kind": "slow"}, "unknown kind 'slow'; use one of classic, speed, ranked"),
        ({"kind": ["speed"]}, "unknown kind"),
        ({"sets": ["X"]}, "unknown rule `sets`"),
        ({"seats": []}, "1 to 8 names"),
        ({"seats": ["X", "X"]}, "distinct names"),
        ({"seats": [""]}, "1 to 32 bytes"),
        ({"seats": ["\ud800"]}, "1 to 32 bytes"),
        ({"seats": [7]}, "Expected `str`"),
        ({"max_wins": -1}, "max_wins must be 0 to"),
        ({"max_wins": True}, "Expected `int`"),
        ({"turn_ms": limits.SEATS_MS_MAX + 1}, "turn_ms must be 0 to"),
        ({"draw": "toss"}, "Invalid enum value"),
        ({"draw": "\ud800"}, "surrogates"),
        ({"ladder": "\ud800"}, "ladder: a name must have"),
        ({"tiers": [1_200, 1_000]}, "ascending order"),
        ({"tiers": [1_000, 1_000]}, "ascending order"),
        ({"tiers": [-1]}, "tiers must be ratings of 0 to 100000"),
        ({"tiers": [limits.SEATS_RATING_MAX + 1]}, "tiers must be ratings"),
        ({"party_max": 3}, "party_max must be 1 to 2"),
        ({"lanes": [f"l{n}" for n in range(limits.SEATS_LANES_MAX + 1)]}, "1 to 48 names"),
        ({"lanes": ["a", "b", "c"], "tiers": list(range(1, 48))}, "at most 48 lanes"),
        ({"lanes": ["a", "b", "c"], "tiers": list(range(16))}, "at most 48 lanes, not 51"),
        ({"lanes": list("abcde"), "tiers": [1, 2, 3, 4], "party_max": 2}, "lanes, not 50"),
        ({"seats": list("ABCDEFGHI")}, "seats must have 1 to 8 names, not 9"),
        ({"bots": list("ABCDEFGHI")}, "bots must have 1 to 8 names, not 9"),
        ({"bots": []}, "bots must have 1 to 8 names, not 0"),
        ({"seats": list("ABC"), "bot_ms": 1}, "bots needs 2 names"),
        ({"lanes": ["a/b"]}, "must not contain '/'"),
        ({"ladder": "x" * 33}, "ladder: a name must have"),
        ({"lanes": ["\u00e4" * 16 + "x"]}, "lanes: a name must have"),
        ({"opens": True, "ends_empty": True}, "cannot end when empty"),
    ],
)
def test_a_policy_that_no_table_can_go_by_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=told) as refused:
        policy_of(given)
    assert refused.value.code == "bad_policy"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kind": "slow"}, "Invalid enum value"),
        ({"draw": None}, "Expected `str`"),
        ({"draw": "\ud800"}, "surrogates"),
        ({"loser": object()}, "unsupported"),
        ({"rated": 1}, "Expected `bool`"),
        ({"seats": {"X": 1}}, "Expected `array`"),
        ({"tiers": ""}, "Expected `array`"),
        ({"ladder": None}, "Expected `str`"),
    ],
)
def test_a_policy_that_could_not_be_read_again_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=told) as refused:
        admit(Policy(**given))
    assert refused.value.code == "bad_policy"


@pytest.mark.parametrize(
    "given",
    [
        *({"draw": name} for name in ("swap", "stay", "back")),
        *({"loser": name, "idle": name} for name in ("back", "leave")),
        {"seats": ["A"]},
        {"seats": list("ABCDEFGH"), "party_max": 8},
        {"bots": list("ABCDEFGH")},
        {"seats": list("ABC"), "bot_ms": 1, "bots": ["b", "c"]},
        {"seats": list("ABC"), "bots": ["b"]},
        {"tiers": [0, limits.SEATS_RATING_MAX]},
        {"tiers": list(range(47))},
        {"lanes": [f"l{n}" for n in range(limits.SEATS_LANES_MAX)]},
        {"lanes": ["a", "b", "c"], "tiers": list(range(15))},
        {"lanes": list("abcdef"), "tiers": [1, 2, 3], "party_max": 2},
        {"lanes": ["\u00e4" * 16]},
        {"ladder": "x" * 32},
        {"opens": True},
        {"ends_empty": True},
    ],
)
def test_a_policy_that_is_just_within_its_bounds_is_one(given: dict[str, Any]) -> None:
    policy = msgspec.structs.asdict(policy_of(given))
    assert {name: policy[name] for name in given} == {
        name: tuple(value) if type(value) is list else value for name, value in given.items()
    }


TIMES = [name for name in Policy.__struct_fields__ if name.endswith("_ms")]


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        *((name, 0, limits.SEATS_MS_MAX) for name in TIMES),
        ("max_wins", 0, limits.SEATS_ROW_MAX),
        ("max_draws", 0, limits.SEATS_ROW_MAX),
        ("waitlist_max", 0, limits.SEATS_WAITLIST_MAX),
        ("spectators_max", 0, limits.SEATS_WAITLIST_MAX),
        ("party_max", 1, 2),
        ("rating_first", 0, limits.SEATS_RATING_MAX),
        ("rating_step", 1, limits.SEATS_RATING_MAX),
    ],
)
def test_a_number_is_within_its_bounds(name: str, least: int, most: int) -> None:
    for value in (least, most):
        assert getattr(policy_of({name: value}), name) == value
    for value in (least - 1, most + 1):
        with pytest.raises(BadInput, match=f"{name} must be {least} to {most}, not {value}"):
            policy_of({name: value})


def test_of_long_nonsense_only_the_beginning_is_told() -> None:
    for given in ({"kind": "7" * 60}, {"max_wins": int("7" * 60)}):
        with pytest.raises(BadInput, match="[^7]" + "7" * 50 + "([^7]|$)"):
            policy_of(given)


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("a", True),
        ("abcd", True),
        ("\u00e4\u00e4", True),
        ("abcde", False),
        ("a\u00e4\u00e4", False),
        ("", False),
        ("a\x00", False),
        ("\ud800", False),
        (5, False),
        (None, False),
        (b"ab", False),
    ],
)
def test_a_name_is_text_of_some_bytes_without_nul(name: Any, fits: bool) -> None:
    assert names_fit(name, 4) is fits
