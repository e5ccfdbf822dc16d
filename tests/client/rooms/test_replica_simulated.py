"""Whatever connections and the server do, all copies come to be the same."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.errors import OncewardError
from onceward.rooms import room as room_module
from onceward.rooms.room import Room, chain
from tests.client.rooms.world import RestoredWorld, World

pytestmark = pytest.mark.no_cover

# Operations of all worlds together; `make soak-rooms` makes more of them.
OPERATIONS, SOAK_OPERATIONS = 100_000, 5_000_000


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(3, 8), st.sampled_from([2, 10, 60, 1_000]))
def test_copies_are_the_same_when_all_has_arrived(seed: int, peers: int, keep: int) -> None:
    world = World(seed, peers, keep)
    world.run(300)
    world.come_to_rest()
    world.judge()
    world.judge_log()


RESTORED_SEEDS = 15


def play_restored(seed: int) -> Counter[str]:
    """A world with restores, from a seed; returns what has happened."""
    world = RestoredWorld(seed, 3 + seed % 4, keep=(5, 30, 1_000)[seed % 3])
    for _ in range(3):
        world.run(200)
        world.come_to_rest()
        world.judge()
    world.judge_log()
    return world.server.tally


def test_copies_are_the_same_after_restores() -> None:
    tally = Counter[str]()
    for seed in range(RESTORED_SEEDS):
        tally += play_restored(seed)
    for event in ("restored", "diverged", "ahead", "replay", "gap", "forgotten", "again"):
        assert tally[event] > 5, tally


def not_compared(room: Room, *position: Any, same: bool | None = True, **more: Any) -> Any:
    return GREET(room, *position, same=None if same is None else True, **more)


def not_chained(before: str, *entry: Any) -> str:
    return chain("", *entry)


def taken_though_forgotten(room: Room, *position: Any, **more: Any) -> Any:
    return GREET(room, *position, **{**more, "waiting": False})


GREET = Room.greet
PLANTED: list[tuple[str, int, tuple[Any, str, Callable[..., Any]]]] = [
    ("a digest that is not compared", 1, (Room, "greet", not_compared)),
    ("a digest that is not chained", 26, (room_module, "chain", not_chained)),
    ("steps of a forgotten client", 10, (Room, "greet", taken_though_forgotten)),
]
"""What is wrong, a seed that shows it, and how."""


@pytest.mark.parametrize(("what", "seed", "planted"), PLANTED, ids=[one[0] for one in PLANTED])
def test_planted_mistakes_about_restores_are_found(
    what: str,
    seed: int,
    planted: tuple[Any, str, Callable[..., Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play_restored(seed)
    monkeypatch.setattr(*planted)
    with pytest.raises((AssertionError, OncewardError)):
        play_restored(seed)


@pytest.mark.rooms
@pytest.mark.timeout(2_700)
def test_very_many_operations_of_many_clients_are_each_in_the_room_once(soak: bool) -> None:
    total, tally = 0, Counter[str]()
    for seed in range(100_000):
        world = World(seed, 3 + seed % 6, keep=(20, 200)[seed % 2])
        for _ in range(4):
            world.run(400)
            world.come_to_rest()
            world.judge()
        world.judge_log()
        total += world.operations
        tally += world.server.tally
        if total >= (SOAK_OPERATIONS if soak else OPERATIONS):
            break
    else:
        pytest.fail("too few operations")
    for event in (
        "new",
        "replay",
        "gap",
        "forgotten",
        "refused",
        "skipped",
        "taken",
        "again",
        "lost",
    ):
        assert tally[event] > 10, tally
