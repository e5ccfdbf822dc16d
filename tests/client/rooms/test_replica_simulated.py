"""Whatever connections and the server do, all copies come to be the same."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.rooms.world import World

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
