import asyncio
from typing import Any

import pytest

from onceward.engine.base import Put, Version
from onceward.engine.memory import MemoryEngine
from onceward.errors import BadInput
from onceward.testing import certify_engine
from onceward.testing.certify import (
    CHECKS,
    CheckFunction,
    NotCertified,
    Violation,
    check_name,
    run_check,
)
from onceward.testing.certify.lab import Lab
from tests.testing.broken_engines import CAUGHT_BY
from tests.testing.broken_races import Lagging

BY_NAME = {check_name(check): check for check in CHECKS}


def ways(kind: Any) -> dict[str, Any]:
    """How to make another engine of this kind on the same database."""
    if issubclass(kind, Lagging):
        return {"reopen": lambda e: kind(e.disk), "crash": lambda e: e.crash()}
    return {"reopen": lambda e: kind(e.memory), "second": lambda e: kind(e.memory)}


@pytest.mark.parametrize("check", CHECKS, ids=check_name)
async def test_the_memory_engine_keeps_the_contract(check: CheckFunction) -> None:
    # Nothing in memory outlives its process: a crash leaves it all to another engine.
    crash = lambda engine: MemoryEngine(engine.memory)  # noqa: E731
    await run_check(check, MemoryEngine, **ways(MemoryEngine), crash=crash)


async def test_an_engine_that_lags_but_is_honest_is_certified() -> None:
    report = await certify_engine(Lagging, **ways(Lagging))
    assert set(report.skipped) == {"a_change_elsewhere_gives_a_hint"}
    assert set(report.passed) | set(report.skipped) == set(BY_NAME)


@pytest.mark.parametrize(
    ("kind", "check"), CAUGHT_BY.items(), ids=lambda value: getattr(value, "__name__", "")
)
async def test_a_broken_engine_is_found_out(kind: type[MemoryEngine], check: str) -> None:
    with pytest.raises(NotCertified) as caught:
        await certify_engine(kind, **ways(kind), timeout_s=0.5, checks=[BY_NAME[check]])
    assert list(caught.value.report.failed) == [check]
    assert "unexpected" not in str(caught.value), "found by a judgement, not by an accident"


async def test_all_failures_are_listed_with_the_guarantee_and_what_was_seen() -> None:
    class Forgetful(MemoryEngine):
        async def commit(self, writes: Any, *rest: Any) -> Version:
            return await super().commit([w for w in writes if type(w) is not Put] or writes, *rest)

    with pytest.raises(NotCertified) as caught:
        await certify_engine(Forgetful)
    report = caught.value.report
    assert len(report.failed) > 5
    assert len(report.passed) > 5
    assert "no way to crash was given" in report.skipped.values()
    text = str(caught.value)
    assert f"{len(report.failed)} failed" in text
    for name, seen in report.failed.items():
        assert f"- {name}: {(BY_NAME[name].__doc__ or '').strip()}\n  Seen: {seen}" in text


async def test_without_ways_to_other_engines_those_checks_are_skipped() -> None:
    report = await certify_engine(MemoryEngine, hints=False)
    assert len(report.passed) + len(report.skipped) == len(CHECKS)
    assert set(report.skipped.values()) == {
        "no way to reopen was given",
        "no way to crash was given",
        "the engine gives no hints",
    }


async def test_ways_to_another_engine_may_be_coroutines() -> None:
    async def reopen(engine: MemoryEngine) -> MemoryEngine:
        return MemoryEngine(engine.memory)

    await run_check(BY_NAME["reopening_keeps_everything"], MemoryEngine, reopen=reopen)


async def test_every_engine_made_is_closed_whatever_happens() -> None:
    made: list[MemoryEngine] = []

    def make() -> MemoryEngine:
        made.append(MemoryEngine())
        return made[-1]

    def again(engine: MemoryEngine) -> MemoryEngine:
        made.append(MemoryEngine(engine.memory))
        return made[-1]

    async def fail(lab: Lab) -> None:
        await lab.both()
        await lab.reopen()
        raise Violation("on purpose")

    with pytest.raises(NotCertified, match="on purpose"):
        await certify_engine(make, reopen=again, second=again, checks=[fail])
    assert len(made) == 3
    assert not any(engine._open for engine in made)


async def test_a_check_that_hangs_or_crashes_has_failed() -> None:
    async def crash(lab: Lab) -> None:
        raise KeyError("from the depths")

    async def hang(lab: Lab) -> None:
        await lab.engine.watch("p").wait(60)

    async def cancelled(lab: Lab) -> None:
        raise asyncio.CancelledError

    with pytest.raises(NotCertified) as caught:
        await certify_engine(MemoryEngine, checks=[crash, hang, cancelled], timeout_s=0.01)
    assert caught.value.report.failed == {
        "crash": "an unexpected KeyError('from the depths')",
        "hang": "not finished after 0.01 s; possibly a deadlock",
        "cancelled": "a call ended as cancelled although nothing cancelled it",
    }


@pytest.mark.parametrize(
    "options",
    [
        *({"factory": factory} for factory in (None, 5, "memory://", MemoryEngine())),
        *({way: 5} for way in ("reopen", "second", "crash")),
        *({"seed": seed} for seed in (None, "1", True, 1.5)),
        *({"timeout_s": seconds} for seconds in (None, "1", True, -1, float("nan"))),
    ],
)
async def test_what_nothing_can_be_certified_with_is_told_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        await certify_engine(**{"factory": MemoryEngine, **options})
