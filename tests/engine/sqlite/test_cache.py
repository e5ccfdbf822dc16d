from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.engine.base import Record
from onceward.engine.memtable import row_bytes
from onceward.engine.sqlite.cache import Cache


def record(name: str, size_bytes: int = 10, version: int = 1) -> Record:
    return Record(("p", name), b"1" * size_bytes, version)


def held(cache: Cache) -> dict[str, Record]:
    """What is in the cache, without using it."""
    return {key[1]: row for rows in (cache._old, cache._young) for key, row in rows.items()}


def test_what_was_put_is_found_and_what_was_dropped_is_not() -> None:
    cache = Cache(10_000)
    cache.put(record("a"))
    assert cache.get(("p", "a")) == record("a")
    cache.put(record("a", version=2))
    assert cache.get(("p", "a")) == record("a", version=2)
    cache.drop(("p", "a"))
    cache.drop(("p", "a"))
    assert cache.get(("p", "a")) is None


def test_what_is_used_stays_and_what_is_not_is_forgotten() -> None:
    cache = Cache(20 * row_bytes(record("used")))
    cache.put(record("used"))
    for number in range(100):
        cache.put(record(f"{number}"))
        assert cache.get(("p", "used")) is not None
    assert cache.get(("p", "0")) is None


def test_many_are_put_or_dropped_at_once() -> None:
    cache, one_by_one = Cache(20 * row_bytes(record("a"))), Cache(20 * row_bytes(record("a")))
    for number in range(30):
        rows = [record(f"{(number * 7 + step) % 11}", number % 3 * 10, number) for step in range(3)]
        cache.take(rows)
        for row in rows:
            if row.value:
                one_by_one.put(row)
            else:
                one_by_one.drop(row.key)
        assert held(cache) == held(one_by_one)
        assert cache._young_bytes == sum(row_bytes(row) for row in cache._young.values())


def test_a_drop_reaches_what_has_grown_old() -> None:
    cache = Cache(4 * row_bytes(record("0")))
    for number in range(3):
        cache.put(record(f"{number}"))
    assert "0" in held(cache)
    cache.drop(("p", "0"))
    assert cache.get(("p", "0")) is None


@given(st.integers(0, 2**32))
def test_the_cache_never_grows_beyond_its_bound_whatever_replaces_what(seed: int) -> None:
    random = Random(seed)
    cache, model = Cache(8_000), dict[str, Record]()
    for version in range(200):
        name = f"{random.randrange(12)}"
        if random.random() < 0.2:
            cache.drop(("p", name))
            model.pop(name, None)
        elif random.random() < 0.6:
            model[name] = record(name, random.choice((1, 100, 3_000)), version)
            cache.put(model[name])
        else:
            found = cache.get(("p", name))
            assert found is None or found == model[name]
        size_bytes = sum(map(row_bytes, held(cache).values()))
        assert size_bytes <= 8_000 + 2 * row_bytes(record("x", 3_000))


def turns(cache: Cache) -> list[str]:
    """What is in a cache for four records after each of six."""
    seen = []
    for name in "abcdef":
        cache.put(record(name))
        seen.append("".join(sorted(held(cache))))
    return seen


def test_when_the_young_are_more_than_half_of_the_bound_they_become_the_old() -> None:
    cache = Cache(4 * row_bytes(record("a")))
    assert turns(cache) == ["a", "ab", "abc", "abcd", "abcde", "def"]


@pytest.mark.parametrize("puts", [1, 2])
def test_what_was_replaced_or_dropped_takes_up_no_room(puts: int) -> None:
    cache, taking = [Cache(4 * row_bytes(record("a"))) for _ in range(2)]
    for _ in range(puts):
        cache.put(record("x"))
        taking.take([record("x")])
    cache.drop(("p", "x"))
    taking.take([record("x", 0)])
    assert turns(cache) == turns(taking) == ["a", "ab", "abc", "abcd", "abcde", "def"]


def test_what_comes_at_once_is_bounded_and_replaces_what_has_grown_old() -> None:
    cache = Cache(4 * row_bytes(record("a")))
    cache.take([record(name) for name in "abc"])
    cache.take([record("a", 0), record("b", version=2)])
    assert held(cache) == {"b": record("b", version=2), "c": record("c")}
    cache.drop(("p", "b"))
    assert cache.get(("p", "b")) is None
    cache.take([record(name) for name in "def"])
    assert sorted(held(cache)) == list("def")
