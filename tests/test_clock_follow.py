"""A clock that keeps to another one, as nodes do to that of their database."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.clock import Clock
from onceward.limits import CLOCK_SLEW_PPM

MS = 1_000_000
SECOND = 1_000 * MS
HOUR = 3_600 * SECOND
START = 1_700_000_000 * SECOND


@dataclass
class World:
    """The true time, a database that shows it, and a machine whose wall clock is hours off."""

    now_ns: int = START
    off_ns: int = 0
    """How far the database's own clock has been set away from the true time."""

    def __post_init__(self) -> None:
        self.clock = Clock(lambda: self.now_ns - 5 * HOUR, lambda: self.now_ns - START + 7 * SECOND)

    def pass_ns(self, passed_ns: int) -> None:
        self.now_ns += passed_ns

    @property
    def database_ns(self) -> int:
        return self.now_ns + self.off_ns

    def ask(self, there_ns: int = 0, back_ns: int = 0, *, at_once: bool = False) -> None:
        """Read the database's clock, over a network that takes its time."""
        asked_ns = self.clock.elapsed_ns()
        self.pass_ns(there_ns)
        time_ms = self.database_ns // MS
        self.pass_ns(back_ns)
        self.clock.follow(time_ms, asked_ns, at_once=at_once)


@pytest.fixture
def world() -> World:
    world = World()
    world.ask(at_once=True)
    return world


def test_it_is_set_to_the_other_one_at_the_start(world: World) -> None:
    assert world.clock.now_ns() == START
    assert world.clock.jump_ms == 0


def test_the_machines_own_clock_counts_no_more(world: World) -> None:
    world.pass_ns(HOUR)
    assert world.clock.now_ns() == START + HOUR
    assert world.clock.jump_ms == 0
    assert world.clock.adopt() == 0


def test_it_is_behind_by_what_the_answer_took_and_the_quickest_answer_counts() -> None:
    world = World()
    world.ask(there_ns=30 * MS, back_ns=50 * MS, at_once=True)
    assert world.database_ns - world.clock.now_ns() == 50 * MS
    world.ask(there_ns=90 * MS, back_ns=2 * MS, at_once=True)
    assert world.database_ns - world.clock.now_ns() == 2 * MS
    world.ask(there_ns=1 * MS, back_ns=700 * MS, at_once=True)
    assert world.database_ns - world.clock.now_ns() == 2 * MS


def test_what_was_believed_stays_as_long_as_the_other_one_can_mean_it(world: World) -> None:
    world.pass_ns(MS // 2)
    world.ask(at_once=True)
    assert world.clock.now_ns() == world.database_ns, "it shows whole milliseconds, as before"
    world.off_ns = -MS
    world.ask(at_once=True)
    assert world.database_ns - world.clock.now_ns() == MS // 2, "that it cannot mean"


def test_an_answer_that_took_long_moves_nothing(world: World) -> None:
    for there_s, back_s in ((0, 3), (3, 0), (50, 50)):
        world.ask(there_ns=there_s * SECOND, back_ns=back_s * SECOND)
        assert world.clock.now_ns() == world.now_ns


@pytest.mark.parametrize("sign", [1, -1])
def test_a_small_difference_is_slewed_away_gently(world: World, sign: int) -> None:
    world.off_ns = sign * 100 * MS
    world.ask()
    world.pass_ns(100 * SECOND)
    assert world.clock.now_ns() == START + 100 * SECOND + sign * 50 * MS, "500 ppm of 100 s"
    world.pass_ns(200 * SECOND)
    assert world.clock.now_ns() == world.database_ns
    assert world.clock.jump_ms == 0


@pytest.mark.parametrize("jump_s", [3600, -3600, 3, -3])
def test_a_jump_is_reported_and_followed_by_command_only(world: World, jump_s: int) -> None:
    world.off_ns = jump_s * SECOND
    for second in range(1, 30):
        world.pass_ns(SECOND)
        world.ask()
        assert world.clock.now_ns() == START + second * SECOND
        assert world.clock.jump_ms == jump_s * 1_000
    assert world.clock.adopt() == jump_s * 1_000
    assert world.clock.now_ns() == world.database_ns


asks = st.tuples(
    st.integers(0, 100 * SECOND),
    st.integers(0, 500 * MS) | st.just(0),
    st.integers(0, 500 * MS) | st.just(0),
)


@given(st.lists(asks, min_size=1, max_size=20))
def test_it_never_runs_ahead_of_a_clock_as_even_as_its_own(
    moves: list[tuple[int, int, int]],
) -> None:
    world = World()
    world.ask(30 * MS, 40 * MS, at_once=True)
    behind_ns = 40 * MS + MS
    for passed_ns, there_ns, back_ns in moves:
        before_ns = world.clock.now_ns()
        at_ns = world.now_ns
        world.pass_ns(passed_ns)
        world.ask(there_ns, back_ns)
        now_ns = world.clock.now_ns()
        assert now_ns <= world.database_ns
        assert world.database_ns - now_ns <= behind_ns
        passed_ns = world.now_ns - at_ns
        gained_ns = now_ns - before_ns - passed_ns
        assert abs(gained_ns) <= passed_ns * CLOCK_SLEW_PPM // 1_000_000
