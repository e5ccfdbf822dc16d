import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward import limits
from onceward.engine.base import (
    ABSENT,
    ANY,
    Check,
    Delete,
    Incarnation,
    Put,
    Record,
    Watchers,
    Write,
    admit,
    admit_scan,
    judge,
    key_bytes,
)
from onceward.engine.memory import MemoryEngine
from onceward.errors import BadInput, Conflict, TooLarge

A, B = ("p", "a"), ("p", "b")

names = st.text(min_size=0, max_size=5) | st.sampled_from(
    ["p" * 2_048, "é" * 1_024, "é" * 1_025, "s" * 1_024, "s" * 1_025, "\ud800", "a\0"]
)


def fits(name: str, bytes_max: int) -> bool:
    """The rule for a name, as plainly as can be."""
    try:
        return 0 < len(name.encode()) <= bytes_max and "\0" not in name
    except UnicodeEncodeError:
        return False


@settings(max_examples=100)
@given(st.lists(st.tuples(names, names), min_size=1, max_size=4, unique=True), st.data())
def test_a_commit_is_admitted_if_all_its_keys_fit(
    keys: list[tuple[str, str]], data: st.DataObject
) -> None:
    writes: list[Write] = [
        data.draw(st.sampled_from([Put(key, b"12"), Delete(key), Check(key, ABSENT)]))
        for key in keys
    ]
    good = all(
        fits(partition, limits.PARTITION_BYTES_MAX) and fits(sort, limits.SORT_BYTES_MAX)
        for partition, sort in keys
    )
    if good:
        values_bytes = sum(2 for write in writes if isinstance(write, Put))
        assert admit(writes) == values_bytes + sum(len("".join(k).encode()) for k in keys)
    else:
        with pytest.raises(BadInput) as refused:
            admit(writes)
        assert refused.value.code == "bad_key"


@pytest.mark.parametrize(
    ("writes", "code"),
    [
        ([], "commit_too_large"),
        ([Put(("p", f"{i}"), b"1") for i in range(101)], "commit_too_large"),
        ([Put(("p", f"{i}"), b"1" * 390_000) for i in range(11)], "commit_too_large"),
        ([Put(A, b"")], "bad_value"),
        ([Put(A, b"1" * 390_001)], "value_too_large"),
        ([Put(A, b"1"), Delete(B), Check(A, ABSENT)], "bad_request"),
    ],
)
def test_a_commit_over_the_limits_is_refused(writes: list[Write], code: str) -> None:
    with pytest.raises(BadInput) as refused:
        admit(writes)
    assert refused.value.code == code


def test_the_same_sort_key_in_two_partitions_is_two_keys() -> None:
    assert admit([Put(("p", "a"), b"1"), Put(("q", "a"), b"1")]) == 6


def test_a_key_counts_as_utf_8() -> None:
    assert key_bytes(("é", "\U00010000")) == 6


async def test_reads_have_limits() -> None:
    async with await MemoryEngine().open() as engine:
        assert len(await engine.get([A] * limits.GET_KEYS_MAX, 0)) == limits.GET_KEYS_MAX
        with pytest.raises(TooLarge):
            await engine.get([A] * (limits.GET_KEYS_MAX + 1), 0)
    admit_scan(1)
    admit_scan(limits.SCAN_RECORDS_MAX)
    for limit in (0, -1, limits.SCAN_RECORDS_MAX + 1):
        with pytest.raises(BadInput):
            admit_scan(limit)


@pytest.mark.parametrize("version", [7, "7"])
def test_expectations_are_judged_by_what_stands_there(version: int | str) -> None:
    there = {A: Record(A, b"1", version)}
    right: list[Write] = [Check(A, version), Check(B, ABSENT), Check(A, ANY), Check(B, ANY)]
    for write in right:
        judge([write], there.get)
    wrong: list[Write] = [
        Check(A, ABSENT),
        Check(B, version),
        Check(A, 8),
        Check(A, "7" if version == 7 else 7),
        Put(A, b"2", None, ABSENT),
        Delete(B, version),
    ]
    for write in wrong:
        with pytest.raises(Conflict) as conflict:
            judge([*right[:2], write], there.get)
        assert conflict.value.details["keys"] == [write.key]
        assert "/".join(write.key) in conflict.value.message


def test_a_record_is_absent_from_its_expiry_on() -> None:
    assert not Record(A, b"1", 1).absent_at(10**15)
    record = Record(A, b"1", 1, expires_at_ms=100)
    assert [record.absent_at(now_ms) for now_ms in (99, 100, 101)] == [False, True, True]


# Watches.


async def test_a_hint_is_remembered_until_it_is_cleared() -> None:
    watchers = Watchers()
    with watchers.add("p") as watch:
        assert not await watch.wait(0)
        watchers.hint([Put(A, b"1")])
        assert await watch.wait(0)
        assert await watch.wait(0)
        watch.clear()
        assert not await watch.wait(0.001)


@pytest.mark.parametrize(
    ("write", "hinted"),
    [
        (Put(A, b"1"), True),
        (Delete(A), True),
        (Check(A, ANY), False),
        (Put(("q", "a"), b"1"), False),
    ],
)
async def test_only_changes_in_the_partition_hint(write: Any, hinted: bool) -> None:
    watchers = Watchers()
    with watchers.add("p") as watch:
        watchers.hint([write])
        assert await watch.wait(0) is hinted


async def test_a_hint_wakes_all_who_wait() -> None:
    watchers = Watchers()
    watches = [watchers.add("p") for _ in range(3)]
    waiting = [asyncio.create_task(watch.wait(10)) for watch in watches]
    await asyncio.sleep(0)
    watchers.hint([Put(A, b"1"), Put(B, b"1")])
    assert await asyncio.gather(*waiting) == [True] * 3


async def test_a_watch_for_others_only_is_not_hinted_by_own_commits() -> None:
    watchers = Watchers()
    with watchers.add("p") as watch, watchers.add("p") as other:
        watch.others_only = True
        watchers.hint([Put(A, b"1")], own=True)
        assert not await watch.wait(0)
        assert await other.wait(0)
        watchers.hint([Put(A, b"1")])
        assert await watch.wait(0)


async def test_a_closed_watch_is_forgotten() -> None:
    watchers = Watchers()
    watch, other = watchers.add("p"), watchers.add("p")
    watch.close()
    watch.close()
    watchers.hint([Put(A, b"1")])
    assert not await watch.wait(0)
    assert await other.wait(0)
    other.close()
    assert watchers.by_partition == {}


# The engine as a context.


async def test_an_engine_is_open_inside_a_with_block() -> None:
    async with MemoryEngine() as engine:
        await engine.commit([Put(A, b"1")], 0)
    with pytest.raises(Exception, match="not open"):
        await engine.get([A], 0)


async def test_all_hear_of_a_new_incarnation_until_they_take_their_hook_out() -> None:
    engine = MemoryEngine()
    assert engine.incarnation == Incarnation("", 1)
    heard: list[tuple[str, int]] = []

    def fail(incarnation: Incarnation) -> None:
        raise ValueError("not ready")

    failed: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    unhook = engine.on_incarnation(lambda found: heard.append(("one", found.number)))
    engine.on_incarnation(fail)
    engine.on_incarnation(lambda found: heard.append(("two", found.number)))
    engine.incarnation_changed(Incarnation("b", 2))
    unhook()
    engine.incarnation_changed(Incarnation("c", 3))
    assert heard == [("one", 2), ("two", 2), ("two", 3)]
    assert len(failed) == 2
