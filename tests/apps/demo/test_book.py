"""The book counts what was acknowledged and what came of it, in whatever order it hears of that."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from apps.demo.book import Book, Counts

KEYS = st.sampled_from("abcde")
IDS = st.sampled_from(["1", "2"])
DEEDS = st.one_of(
    st.tuples(st.just("acknowledge"), KEYS, st.booleans()),
    st.tuples(st.just("effect"), KEYS, IDS),
)


@given(st.lists(DEEDS, max_size=40))
def test_a_book_counts_like_one_who_remembers_everything(deeds: list[tuple[str, str, str]]) -> None:
    book, acknowledged, effects = Book(), set[str](), defaultdict[str, list[str]](list)
    stopped = 0
    for what, key, more in deeds:
        if what == "acknowledge":
            book.acknowledge(key, f"id of {key}", 0, duplicate=bool(more))
            acknowledged.add(key)
            stopped += bool(more)
        else:
            book.effect(key, more)
            effects[key].append(more)
    assert book.counts() == Counts(
        acknowledged=len(acknowledged),
        in_effect=len(acknowledged & set(effects)),
        under_way=len(acknowledged - set(effects)),
        doubled=sum(len(set(ids)) > 1 for ids in effects.values()),
        stopped=stopped,
        repeated=sum(ids.count(ids[0]) - 1 for ids in effects.values()),
    )
    assert {key for key, _ in book.overdue(1)} == acknowledged - set(effects)


def test_only_what_is_overdue_is_asked_for_and_may_be_lost() -> None:
    book = Book()
    book.acknowledge("old", "job 1", 1_000)
    book.acknowledge("new", "job 2", 2_000)
    assert list(book.overdue(2_000)) == [("old", "job 1")]
    book.lose("old")
    book.lose("never heard of")
    book.acknowledge("old", "job 1", 3_000)  # to be told again changes nothing
    assert book.counts() == Counts(acknowledged=2, under_way=1, lost=1)
    book.effect("old", "1")  # so it was not lost after all
    assert book.counts() == Counts(acknowledged=2, in_effect=1, under_way=1)


def test_a_book_has_a_bound_and_what_it_forgets_stays_counted() -> None:
    book = Book(kept_max=10)
    for number in range(1_000):
        book.acknowledge(str(number), "", 0)
        book.effect(str(number), "1")
        book.effect(str(number), "1" if number % 2 else "2")
    assert book.counts() == Counts(acknowledged=1_000, in_effect=1_000, doubled=500, repeated=500)
    assert max(len(vars(book)[name]) for name in ("_effects", "_heard", "_doubled")) == 10
