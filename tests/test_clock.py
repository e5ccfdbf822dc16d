import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.clock import Clock, boot_ns
from onceward.limits import CLOCK_JUMP_MS, CLOCK_SLEEP_S_MAX, CLOCK_SLEW_PPM

MS = 1_000_000
SECOND = 1_000 * MS
START = 1_700_000_000 * SECOND


@dataclass
class Sources:
    """A wall clock and a boot clock that move as told."""

    wall_ns: int = START
    boot_ns: int = 5 * SECOND

    def clock(self) -> Clock:
        return Clock(lambda: self.wall_ns, lambda: self.boot_ns)

    def pass_ns(self, passed_ns: int, wall_error_ns: int = 0) -> None:
        self.boot_ns += passed_ns
        self.wall_ns += passed_ns + wall_error_ns


def test_it_starts_at_the_wall_clock_and_follows_the_time_that_passes() -> None:
    sources = Sources()
    clock = sources.clock()
    assert clock.now_ns() == START
    sources.pass_ns(90 * SECOND)
    assert clock.now_ns() == START + 90 * SECOND
    assert clock.now_ms() == (START + 90 * SECOND) // MS
    assert clock.jump_ms == 0


def test_the_real_one_runs_with_the_wall_clock() -> None:
    clock = Clock()
    first = clock.now_ns()
    assert clock.now_ns() >= first
    assert clock.jump_ms == 0
    assert boot_ns() <= clock.elapsed_ns() <= boot_ns()


def test_suspend_counts_as_time_passed() -> None:
    sources = Sources()
    clock = sources.clock()
    sources.pass_ns(8 * 3600 * SECOND)
    assert clock.now_ns() == START + 8 * 3600 * SECOND


@pytest.mark.parametrize("jump_s", [3600, -3600, 3, -3])
def test_a_jump_of_the_wall_clock_is_reported_and_not_followed(jump_s: int) -> None:
    sources = Sources()
    clock = sources.clock()
    sources.wall_ns += jump_s * SECOND
    for second in range(1, 100):
        sources.pass_ns(SECOND)
        assert clock.now_ns() == START + second * SECOND
        assert clock.jump_ms == jump_s * 1_000


def test_a_jump_is_adopted_by_command_and_only_once() -> None:
    sources = Sources()
    clock = sources.clock()
    sources.pass_ns(SECOND, wall_error_ns=3600 * SECOND)
    assert clock.adopt() == 3_600_000
    assert clock.now_ns() == sources.wall_ns
    assert clock.jump_ms == 0
    assert clock.adopt() == 0
    sources.pass_ns(SECOND, wall_error_ns=-7200 * SECOND)
    assert clock.adopt() == -7_200_000
    assert clock.now_ns() == sources.wall_ns


def test_a_jump_that_is_taken_back_leaves_no_trace() -> None:
    sources = Sources()
    clock = sources.clock()
    sources.pass_ns(SECOND, wall_error_ns=60 * SECOND)
    assert clock.jump_ms == 60_000
    sources.pass_ns(SECOND, wall_error_ns=-60 * SECOND)
    assert clock.jump_ms == 0
    assert clock.now_ns() == START + 2 * SECOND


@pytest.mark.parametrize("sign", [1, -1])
def test_a_small_difference_is_slewed_away_gently(sign: int) -> None:
    sources = Sources()
    clock = sources.clock()
    sources.wall_ns += sign * 100 * MS
    sources.pass_ns(100 * SECOND)
    assert clock.now_ns() == START + 100 * SECOND + sign * 50 * MS, "500 ppm of 100 s"
    sources.pass_ns(100 * SECOND)
    assert clock.now_ns() == sources.wall_ns
    sources.pass_ns(100 * SECOND)
    assert clock.now_ns() == sources.wall_ns, "and not beyond"


def test_it_stands_still_while_no_time_passes() -> None:
    sources = Sources()
    clock = sources.clock()
    sources.wall_ns += SECOND
    assert clock.now_ns() == clock.now_ns() == START
    sources.boot_ns -= 10
    assert clock.now_ns() == START, "even if the boot clock were broken"


steps = st.tuples(
    st.integers(0, 10_000 * SECOND),
    st.integers(-5 * SECOND, 5 * SECOND) | st.sampled_from([-3600 * SECOND, 3600 * SECOND]),
)


@settings(max_examples=60)
@given(st.lists(steps, min_size=1, max_size=20))
def test_whatever_the_wall_clock_does_time_never_goes_back_or_jumps(
    moves: list[tuple[int, int]],
) -> None:
    sources = Sources()
    clock = sources.clock()
    for passed_ns, wall_error_ns in moves:
        before_ns = clock.now_ns()
        sources.pass_ns(passed_ns, wall_error_ns)
        gained_ns = clock.now_ns() - before_ns - passed_ns
        assert abs(gained_ns) <= passed_ns * CLOCK_SLEW_PPM // 1_000_000
        assert clock.now_ns() >= before_ns
        off_ns = sources.wall_ns - clock.now_ns()
        assert (clock.jump_ms != 0) == (abs(off_ns) >= CLOCK_JUMP_MS * MS)


def test_a_wall_clock_just_within_reach_raises_no_alarm() -> None:
    sources = Sources()
    clock = sources.clock()
    sources.wall_ns -= CLOCK_JUMP_MS * MS - 1
    assert clock.jump_ms == 0
    sources.wall_ns -= 1
    assert clock.jump_ms == -CLOCK_JUMP_MS
    sources.pass_ns(SECOND)
    assert clock.now_ns() == START + SECOND, "what raises the alarm is not followed"


class Sleeper:
    """A clock whose sleeps wake early or late, as sleeps do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
        self.sources = Sources()
        self.clock = self.sources.clock()
        self.slept: list[float] = []
        self.factor = factor
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        assert len(self.slept) < 1_000, "it sleeps for ever"
        self.sources.pass_ns(max(int(seconds * self.factor * SECOND), 1_000))


@pytest.mark.parametrize("factor", [0.5, 0.999, 1.0, 3.0])
async def test_sleep_until_is_never_early(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    sleeper = Sleeper(monkeypatch, factor)
    sleeper.sources.pass_ns(999_999)
    due_ms = START // MS + 25_000
    await sleeper.clock.sleep_until(due_ms)
    assert sleeper.clock.now_ms() >= due_ms
    if factor <= 1:
        assert sleeper.clock.now_ms() - due_ms <= 1, "nor late, if sleeps are not"


async def test_sleep_until_sleeps_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = Sleeper(monkeypatch, 1)
    await sleeper.clock.sleep_until(START // MS + 25_000)
    assert sleeper.slept == [CLOCK_SLEEP_S_MAX, CLOCK_SLEEP_S_MAX, 5.0]


async def test_sleep_until_returns_at_once_when_the_time_has_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sleeper = Sleeper(monkeypatch, 1)
    await sleeper.clock.sleep_until(START // MS)
    await sleeper.clock.sleep_until(START // MS - 1)
    assert sleeper.slept == []


async def test_a_jump_of_the_wall_clock_wakes_no_one_early(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = Sleeper(monkeypatch, 1)
    sleeper.sources.wall_ns += 3600 * SECOND
    await sleeper.clock.sleep_until(START // MS + 60_000)
    assert sleeper.sources.boot_ns >= 65 * SECOND


async def test_sleep_passes_on_to_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = Sleeper(monkeypatch, 1)
    await sleeper.clock.sleep(0.25)
    assert sleeper.slept == [0.25]
