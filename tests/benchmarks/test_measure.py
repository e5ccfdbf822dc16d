import asyncio
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.measure import (
    caller_number,
    cpu_seconds,
    measure_tasks,
    measure_threads,
    memory_mib,
    summary,
)

TIMES = st.lists(st.integers(1, 10**12), min_size=1, max_size=300)


@given(TIMES)
def test_percentiles_are_times_that_were_taken_in_their_order(took_ns: list[int]) -> None:
    figures = summary(took_ns, sum(took_ns))
    times = {value / 1e6 for value in took_ns}
    assert {figures["p50_ms"], figures["p99_ms"], figures["max_ms"]} <= times
    assert figures["p50_ms"] <= figures["p99_ms"] <= figures["max_ms"] == max(times)


def test_a_rate_counts_all_the_time_that_passed() -> None:
    figures = summary([1_000_000] * 4, 2_000_000_000, cpu_s=0.002)
    assert figures["per_second"] == 2
    assert figures["cpu_us"] == pytest.approx(500)
    assert "cpu_us" not in summary([1], 1)


def test_nothing_done_is_no_figure() -> None:
    with pytest.raises(ValueError, match="measure for longer"):
        summary([], 1)


async def test_callers_that_are_tasks_call_with_names_of_their_own() -> None:
    names: list[str] = []

    async def call(name: str) -> None:
        names.append(name)
        await asyncio.sleep(0)

    figures = await measure_tasks(call, 3, 0.01)
    assert len(set(names)) == len(names)
    assert {caller_number(name) for name in names} == {0, 1, 2}
    assert figures["per_second"] > 0


def test_callers_that_are_threads_call_with_names_of_their_own() -> None:
    names: list[str] = []
    figures = measure_threads(names.append, 2, 0.01)
    assert len(set(names)) == len(names)
    assert {caller_number(name) for name in names} == {0, 1}
    assert figures["per_second"] > 0


async def test_a_call_that_fails_ends_it() -> None:
    async def call(name: str) -> None:
        raise KeyError(name)

    with pytest.raises(KeyError):
        await measure_tasks(call, 2, 0.01)

    def call_now(name: str) -> None:
        raise KeyError(name)

    with pytest.raises(KeyError):
        measure_threads(call_now, 2, 0.01)


def test_memory_counts_what_a_process_has_started() -> None:
    script = "import sys; data = bytearray(32 << 20); print(); sys.stdin.read()"
    alone = memory_mib()
    assert alone is not None
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        both = memory_mib(os.getpid())
        assert both is not None
        assert both > alone + 32
        assert child.stdin is not None
        child.stdin.close()


def test_the_processor_counts_what_a_process_has_started() -> None:
    # Until it has run for a while by its own clock, whatever else goes on.
    script = (
        "import sys, time\nwhile time.process_time() < 0.1: pass\n"
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with_child = cpu_seconds()
        assert child.stdin is not None
        child.stdin.close()
    # Ended and waited for, it counts no more.
    assert with_child - cpu_seconds() > 0.05


def test_memory_of_a_process_that_is_gone_is_not_known() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    assert memory_mib(child.pid) is None
