import random
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from uuid import RFC_4122, UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceward.errors import BadInput
from onceward.ids import LENGTH, Ids, Pool, created_ms, random_bytes

ORDER = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def ids_at(
    *times_ms: int, randbytes: Callable[[int], bytes] | None = None
) -> tuple[Ids, list[str]]:
    """An id made at each of these times."""
    clock = iter(times_ms)
    ids = Ids(lambda: next(clock), randbytes or random.Random(1).randbytes)
    return ids, [ids.new() for _ in times_ms]


def test_an_id_is_26_characters_without_look_alikes() -> None:
    _, made = ids_at(*range(1_000_000, 1_000_200))
    for id_ in made:
        assert len(id_) == LENGTH == 26
        assert set(id_) <= set(ORDER)
    assert not set(ORDER) & set("ILOU")


def value_of(id_: str) -> int:
    return sum(32**n * ORDER.index(char) for n, char in enumerate(id_[::-1]))


@given(st.integers(1, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_an_id_is_its_time_and_eighty_random_bits_in_base_32(now_ms: int, drawn: bytes) -> None:
    _, [id_] = ids_at(now_ms, randbytes=lambda size: drawn[:size])
    assert value_of(id_) == now_ms << 80 | int.from_bytes(drawn)


@given(st.integers(0, 2**48 - 1))
@example(1)
def test_an_id_tells_when_it_was_made(now_ms: int) -> None:
    _, [id_] = ids_at(now_ms)
    assert created_ms(id_) == now_ms


@settings(max_examples=50)
@given(st.lists(st.integers(0, 2**48 - 1), min_size=2, max_size=30))
def test_ids_increase_strictly_whatever_the_clock_does(times_ms: list[int]) -> None:
    _, made = ids_at(*times_ms)
    assert made == sorted(set(made))


def test_ids_of_one_millisecond_increase_with_any_randomness() -> None:
    for byte in (b"\x00", b"\xff"):
        _, made = ids_at(*[5] * 100, randbytes=lambda size, byte=byte: byte * size)  # type: ignore[misc]
        assert made == sorted(set(made))


def test_when_the_clock_goes_back_ids_stay_at_the_latest_time() -> None:
    _, made = ids_at(2_000, 1_000, 3_000)
    assert [created_ms(id_) for id_ in made] == [2_000, 2_000, 3_000]


def test_the_next_id_of_a_millisecond_cannot_be_guessed() -> None:
    _, made = ids_at(*[5] * 50)
    values = [value_of(id_) for id_ in made]
    steps = {b - a for a, b in pairwise(values)}
    assert len(steps) > 40


def test_ids_of_one_millisecond_are_at_most_32_bits_apart() -> None:
    for byte, step in ((b"\x00", 1), (b"\xff", 2**32)):
        _, [one, other] = ids_at(5, 5, randbytes=lambda size, byte=byte: byte * size)  # type: ignore[misc]
        assert value_of(other) - value_of(one) == step


def test_ids_sort_by_time_across_makers() -> None:
    _, [early] = ids_at(1_000, randbytes=lambda size: b"\xff" * size)
    _, [late] = ids_at(1_001, randbytes=lambda size: b"\x00" * size)
    assert early < late


def test_the_same_randomness_makes_the_same_ids() -> None:
    assert ids_at(1, 2, 2, 3)[1] == ids_at(1, 2, 2, 3)[1]
    one, other = Ids(lambda: 1), Ids(lambda: 1)
    assert one.new() != other.new(), "by default, the machine's own"


def test_a_fraction_is_at_least_0_and_below_1() -> None:
    assert Ids(lambda: 0, lambda size: b"\x00" * size).fraction() == 0
    assert 0.999 < Ids(lambda: 0, lambda size: b"\xff" * size).fraction() < 1
    ids = Ids(lambda: 0, random.Random(1).randbytes)
    mean = sum(ids.fraction() for _ in range(1_000)) / 1_000
    assert 0.45 < mean < 0.55


def test_a_token_is_as_many_random_bytes_as_asked_for_in_hex() -> None:
    ids = Ids(lambda: 0, lambda size: bytes(range(size)))
    assert ids.token(4) == "00010203"
    assert len(ids.token()) == 64
    assert len(random_bytes(16)) == 16


@pytest.mark.parametrize(
    "text", ["", "0" * 25, "0" * 27, *("0" * 25 + last for last in "ILOUaé\n#")]
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="not an id") as refused:
        created_ms(text)
    assert refused.value.code == "bad_key"


def test_a_pool_gives_each_byte_once_and_as_many_as_are_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = b""

    def draw(count: int) -> bytes:
        nonlocal drawn
        piece = random.Random(len(drawn)).randbytes(count)
        drawn += piece
        return piece

    monkeypatch.setattr("onceward.ids.random_bytes", draw)
    pool, start = Pool(), 0
    for count in [1, 10, 500, 0, 513, 1, 5_000, *[7] * 300]:
        given = pool(count)
        assert len(given) == count
        found = drawn.find(given, start)
        assert found >= start
        start = found + count


def test_a_pool_that_forgets_gives_nothing_that_it_has_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pieces = iter([b"old", b"new"])
    monkeypatch.setattr("onceward.ids.random_bytes", lambda count: next(pieces))
    pool = Pool()
    assert pool(1) == b"o"
    pool.forget()
    assert pool(1) + pool(2) == b"new"


FORK = """
import os
from onceward.ids import Ids
ids = Ids(lambda: 1)
ids.new()
child = os.fork()
if child:
    os.waitpid(child, 0)
print(ids.token(100), flush=True)
os._exit(0)
"""


def test_a_process_and_its_fork_have_no_random_bytes_in_common() -> None:
    printed = subprocess.run([sys.executable, "-c", FORK], capture_output=True, check=True)
    theirs, mine = printed.stdout.split()
    assert len(theirs) == len(mine) == 200
    assert theirs != mine


def test_uuids_are_of_version_7_and_sort_by_time() -> None:
    now_ms = 1_700_000_000_000
    ids = Ids(lambda: now_ms)
    found = []
    for _ in range(50):
        found.append(ids.uuid())
        now_ms += 1
    assert found == sorted(set(found))
    for number, text in enumerate(found):
        uuid = UUID(text)
        assert (str(uuid), uuid.version, uuid.variant) == (text, 7, RFC_4122)
        assert uuid.int >> 80 == 1_700_000_000_000 + number
