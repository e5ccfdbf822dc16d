import pytest

from onceward import limits
from onceward.engine.base import Record
from onceward.store.cache import Heads


def head(sort: str, size_bytes: int = 1) -> Record:
    return Record(("p", sort), b"1" * size_bytes, 1)


def kept(heads: Heads) -> str:
    return "".join(sort for sort in "abcdef" if ("p", sort) in heads.records)


def test_the_oldest_of_too_many_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEADS_MAX", 3)
    heads = Heads()
    for sort in "abcade":
        heads.put(head(sort))
    assert kept(heads) == "ade"
    assert len(heads.records) == 3


def test_the_oldest_go_when_they_take_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEADS_BYTES_MAX", 100)
    heads = Heads()
    for sort, size_bytes in (("a", 60), ("b", 20), ("a", 70), ("a", 10), ("c", 70)):
        heads.put(head(sort, size_bytes))
    assert kept(heads) == "abc", "what was replaced takes nothing"
    heads.put(head("d", 1))
    assert kept(heads) == "acd"
    heads.drop(("p", "c"))
    heads.drop(("p", "c"))
    heads.put(head("e", 89))
    assert kept(heads) == "ade"
    heads.put(head("f", 101))
    assert kept(heads) == "", "not even alone"


def test_a_copy_is_what_was_put_last() -> None:
    heads = Heads()
    heads.put(head("a", 1))
    heads.put(head("a", 2))
    assert heads.records.get(("p", "a")) == head("a", 2)
    assert heads.records.get(("p", "b")) is None


def test_all_can_be_forgotten_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEADS_BYTES_MAX", 100)
    heads = Heads()
    heads.put(head("a", 90))
    heads.clear()
    assert kept(heads) == ""
    heads.put(head("b", 90))
    assert kept(heads) == "b", "what was forgotten takes nothing"
