"""Many commits as one call: how they are laid out, and how the answer is read."""

from hashlib import sha256
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.engine.base import ABSENT, ANY, Check, Delete, Put, Write
from onceward.engine.postgres.batch import NEVER, Batch, Member, joined, stored_partition
from onceward.errors import BadInput, Conflict

A, B, C = ("p", "a"), ("p", "b"), ("p", "c")
NAMES = [
    *("claimed", "tangled", "separator", "partitions", "sorts", "contents", "expiries", "expects"),
    *("kinds", "members", "roles", "times", "firsts", "turns", "ends"),
]


def member(*writes: Write, now_ms: int = 5) -> Member:
    return Member(writes, now_ms, 0, None, None)


def laid_out(*members: Member) -> dict[str, Any]:
    """The arguments by name, as the server sees them."""
    arguments = dict(zip(NAMES, Batch(members).arguments, strict=True))
    separator = arguments["separator"]
    for name in ("partitions", "sorts", "contents"):
        arguments[name] = arguments[name].split(separator)
    for name in NAMES[6:]:
        arguments[name] = [int(number) for number in arguments[name][1:-1].split(",") if number]
    return arguments


def test_writes_are_sorted_by_key_and_members_keep_their_order() -> None:
    seen = laid_out(
        member(Put(C, b"1"), Put(A, b"2"), now_ms=10),
        member(Delete(B, 7), Check(A, ABSENT), now_ms=20),
    )
    assert seen["sorts"] == ["a", "a", "b", "c"]
    assert seen["members"] == [1, 2, 2, 1]
    assert seen["contents"] == ["2", "", "", "1"]
    assert seen["kinds"] == [1, 0, 2, 1]
    assert seen["expects"] == [-1, 0, 7, -1]
    assert seen["times"] == [10, 20]
    ends = [0, *seen["ends"]]
    turns = [set(seen["turns"][i:j]) for i, j in pairwise(ends)]
    assert turns == [{1, 4}, {2, 3}]


def test_writes_are_sorted_by_partition_first() -> None:
    keys = [("q", "a"), ("p", "z"), ("p", "b"), ("o", "c")]
    batch = [member(*(Put(key, b"1", None, 3) for key in keys))]
    seen = laid_out(*batch)
    assert seen["partitions"] == ["o", "p", "p", "q"]
    assert seen["sorts"] == ["c", "b", "z", "a"]
    for index, key in enumerate(sorted(keys), 1):
        [verdict] = Batch(batch).verdicts(0, f"{index}")
        assert isinstance(verdict, Conflict)
        assert verdict.details["keys"] == [key]


def test_a_member_knows_who_waits_for_it_and_has_lost_nothing_yet() -> None:
    def visible(version: Any) -> None: ...

    done = object()
    one = Member([Put(A, b"1")], 5, 77, visible, done)
    assert (one.now_ms, one.size_bytes, one.losses) == (5, 77, 0)
    assert one.visible is visible
    assert one.done is done


def test_members_are_tangled_if_they_name_the_same_key() -> None:
    assert not laid_out(member(Put(A, b"1")), member(Put(B, b"1"), Check(C, 1)))["tangled"]
    assert laid_out(member(Put(A, b"1")), member(Put(B, b"1"), Check(A, 1)))["tangled"]
    assert laid_out(member(Check(C, 1)), member(Put(B, b"1")), member(Check(C, 1)))["tangled"]


def test_keys_sort_as_bytes_as_they_do_in_the_table() -> None:
    names = ["\U00010000", "\uffff", "a", "B", "é"]
    seen = laid_out(member(*(Put(("p", name), b"1") for name in names)))
    assert seen["sorts"] == sorted(names, key=str.encode)


FIRST, CLAIM, CLAIMED = 1, 2, 4


@pytest.mark.parametrize(
    ("writes", "roles"),
    [
        ([Put(A, b"1")], [FIRST + CLAIM + CLAIMED]),
        ([Put(A, b"1", None, ABSENT)], [FIRST + CLAIM + CLAIMED]),
        ([Put(A, b"1", None, 7)], [FIRST]),
        ([Check(A, 7)], [FIRST]),
        ([Delete(A, 7)], [FIRST]),
        ([Delete(A)], [FIRST + CLAIM + CLAIMED]),
        ([Check(A, ABSENT)], [FIRST + CLAIM + CLAIMED]),
        ([Put(A, b"1"), Put(A, b"2")], [FIRST + CLAIM + CLAIMED, 0]),
        ([Check(A, 7), Put(A, b"2")], [FIRST + CLAIMED, CLAIM]),
        ([Check(A, ABSENT), Put(A, b"2")], [FIRST + CLAIMED, CLAIM]),
        ([Check(A, ABSENT), Delete(A), Put(A, b"2", None, 7)], [FIRST + CLAIM + CLAIMED, 0, 0]),
        ([Delete(A), Put(A, b"1"), Put(A, b"2")], [FIRST + CLAIMED, CLAIM, 0]),
    ],
)
def test_a_key_is_claimed_once_by_a_put_if_there_is_one(
    writes: list[Write], roles: list[int]
) -> None:
    seen = laid_out(*(member(write) for write in writes))
    assert seen["roles"] == roles
    assert seen["firsts"] == ([1] * len(writes) if len(writes) > 1 else [])
    assert seen["claimed"] == any(role & CLAIMED for role in roles)


def test_each_member_has_a_version_of_its_own_or_its_conflict() -> None:
    batch = Batch([member(Put(B, b"1")), member(Put(C, b"1", None, 3), Check(A, 4), Delete(B))])
    # In the order of keys: A of 2, B of 1, B of 2, C of 2.
    assert batch.verdicts(1_024, "") == [1_025, 1_026]
    first, second = batch.verdicts(2_048, "1,4")
    assert first == 2_049
    assert isinstance(second, Conflict)
    assert second.details["keys"] == [C, A]
    assert "p/c, p/a" in second.message


def test_a_conflict_names_the_partition_that_the_caller_knows() -> None:
    key = ("é" * 1_000, "k")
    [verdict] = Batch([member(Check(key, 1), Put(A, b"1"))]).verdicts(0, "1,2")
    assert isinstance(verdict, Conflict)
    assert {*verdict.details["keys"]} == {key, A}  # type: ignore[misc]


@pytest.mark.parametrize("expect", [-5, 0, NEVER, 2**70, "another engine's"])
def test_what_cannot_be_a_version_is_never_right(expect: Any) -> None:
    assert laid_out(member(Check(A, expect)))["expects"] == [-2]


@pytest.mark.parametrize(
    ("value", "why"), [(b"\xff\xfe", "not UTF-8"), (b'"\x00"', "NUL"), (b"\xed\xa0\x80", "UTF-8")]
)
def test_a_value_that_is_no_text_is_refused_before_it_spoils_a_batch(
    value: bytes, why: str
) -> None:
    with pytest.raises(BadInput, match=why) as refused:
        member(Put(A, value))
    assert refused.value.code == "bad_value"


@pytest.mark.parametrize("expect", [1, 2, 2**63 - 2])
def test_a_version_is_expected_as_it_is(expect: int) -> None:
    assert laid_out(member(Check(A, expect)))["expects"] == [expect]


@pytest.mark.parametrize("time_ms", [2**63 - 2, -(2**63) + 2, 0])
def test_times_up_to_those_that_never_come_are_kept(time_ms: int) -> None:
    seen = laid_out(member(Put(A, b"1", time_ms), Put(B, b"1"), now_ms=time_ms))
    assert seen["expiries"] == [time_ms, 2**63 - 1]
    assert seen["times"] == [time_ms]


@pytest.mark.parametrize("time_ms", [2**63 - 1, -(2**63) + 1, 2**63, -(2**63), 10**30])
def test_a_time_that_the_table_cannot_hold_is_refused(time_ms: int) -> None:
    with pytest.raises(BadInput, match="not a time"):
        member(Put(A, b"1", time_ms))
    with pytest.raises(BadInput, match="not a time"):
        member(Put(A, b"1"), now_ms=time_ms)


def test_a_short_partition_is_stored_as_it_is() -> None:
    for partition in ("p", "é" * 750, "p" * 1_500):
        assert stored_partition(partition) == partition


def test_a_partition_too_long_for_an_index_is_stored_by_its_beginning_and_a_hash() -> None:
    long = ["p" * 2_048, "p" * 2_047 + "q", "é" * 1_024, "\U0001f600" * 512, "p" * 1_501]
    stored = [stored_partition(partition) for partition in long]
    assert len(set(stored)) == len(stored)
    for partition, name in zip(long, stored, strict=True):
        assert name[:300] == partition[:300], "a person can still tell what it is"
        # Longer than what is stored as it is, so that it cannot be taken for another's name.
        assert 1_500 < len(name.encode()) < 1_600
    assert laid_out(member(Put((long[0], "k"), b"1")))["partitions"] == [stored[0]]


@pytest.mark.parametrize(
    ("partition", "beginning"),
    [
        ("p" * 1_501, "p" * 1_450),
        ("é" * 751, "é" * 725),
        ("p" + "é" * 750, "p" + "é" * 724),
        ("\U0001f600" * 376, "\U0001f600" * 362),
    ],
)
def test_the_name_of_a_long_partition_is_the_one_that_databases_have(
    partition: str, beginning: str
) -> None:
    name = f"{beginning}#{sha256(partition.encode()).hexdigest()}"
    assert stored_partition(partition) == name
    assert laid_out(member(Put((partition, "k"), b"1")))["partitions"] == [name]


@given(st.lists(st.lists(st.text("ab\x1e1\x1f2", max_size=6), min_size=1, max_size=4), max_size=4))
def test_joined_texts_can_be_split_again_whatever_they_hold(lists: list[list[str]]) -> None:
    separator, texts = joined(*lists)
    assert [text.split(separator) for text in texts] == lists


def test_texts_are_joined_by_the_first_separator_that_is_in_none_of_them() -> None:
    assert joined(["a"], ["b", "c"]) == ("\x1e", ["a", "b\x1ec"])
    separator, texts = joined(["a", "b"], ["\x1e", "c"])
    assert (separator, texts[0]) == ("\x1e1\x1f", "a\x1e1\x1fb")
    separator, texts = joined(["a", "b"], ["x\x1e1\x1f", "\x1e2\x1f"])
    assert (separator, texts[0]) == ("\x1e3\x1f", "a\x1e3\x1fb")
    assert joined([], []) == ("\x1e", ["", ""])


def test_a_check_that_expects_nothing_is_left_out() -> None:
    seen = laid_out(member(Check(A, ANY), Put(B, b"1"), Check(C, ANY)))
    assert seen["sorts"] == ["b"]
    [verdict] = Batch([member(Check(A, ANY), Put(B, b"1", None, 3))]).verdicts(0, "1")
    assert isinstance(verdict, Conflict)
    assert verdict.details["keys"] == [B]


def test_the_arrays_of_a_batch_have_one_entry_for_each_write() -> None:
    seen = laid_out(member(Put(A, b"1", 99), Check(B, 3)), member(Delete(A)))
    each = set(NAMES[3:]) - {"times", "ends"}
    assert {len(seen[name]) for name in each} == {3}
    assert seen["expiries"] == [99, NEVER, NEVER], "sorted by key: put and delete of A, check of B"
    assert len(seen["ends"]) == len(seen["times"]) == 2
