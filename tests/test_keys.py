from enum import StrEnum
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceward import keys
from onceward.errors import BadInput
from onceward.keys import after, below, join, kind_of, number, shown_key, split, user_key
from onceward.limits import KEY_NUMBER_MAX
from onceward.parts import all_kinds

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.text(
    "#$%!ab \0\U00010000\uffff", max_size=4
)
tuples = st.lists(words, min_size=1, max_size=4).map(tuple)
numbers = st.integers(0, KEY_NUMBER_MAX)


def as_bytes(parts: tuple[str, ...]) -> list[bytes]:
    return [part.encode() for part in parts]


def test_keys_are_readable() -> None:
    assert join("due", 7, "01ABC") == "due#0000000000000007#01ABC"
    assert join("room", "tea & cake", "№ 5") == "room#tea$20&$20cake#№$205"
    assert join("a#b", "c$d") == "a$23b#c$24d"
    assert join("100 %") == "100$20%"


@given(tuples)
def test_split_inverts_join(parts: tuple[str, ...]) -> None:
    assert split(join(*parts)) == parts


@given(tuples, tuples)
@example(("a",), ("a", ""))
@example(("a", "z"), ("a!",))
@example(("a", "z"), ("a\0",))
@example(("a", "\U0010ffff"), ("aa",))
def test_encoded_keys_sort_like_the_tuples(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    encoded, plain = (join(*one), join(*other)), (as_bytes(one), as_bytes(other))
    assert (encoded[0] < encoded[1]) == (plain[0] < plain[1])
    assert (encoded[0].encode() < encoded[1].encode()) == (encoded[0] < encoded[1])


@given(tuples, tuples)
def test_different_tuples_have_different_keys(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert (join(*one) == join(*other)) == (one == other)


@given(numbers, numbers)
def test_numbers_sort_as_numbers(one: int, other: int) -> None:
    assert (join("n", one) < join("n", other)) == (one < other)
    assert int(split(join("n", one))[1]) == one


@given(tuples, tuples, st.booleans())
@example(("a",), ("a b",), False)
def test_below_covers_exactly_the_extensions(
    prefix: tuple[str, ...], other: tuple[str, ...], extend: bool
) -> None:
    start, end = below(*prefix)
    parts = prefix + other if extend else other
    extends = len(parts) > len(prefix) and parts[: len(prefix)] == prefix
    assert (start <= join(*parts) < end) == extends


@given(st.text(), st.text(), st.booleans())
@example("a", "\x01", True)
def test_after_is_behind_a_key_and_not_behind_any_other(
    key: str, other: str, extends: bool
) -> None:
    other = (key + other if extends else other).replace("\x00", "")
    key = key.replace("\x00", "")
    assert key < after(key)
    assert (other > key) == (other >= after(key))


@settings(max_examples=30)
@given(tuples)
def test_a_key_holds_no_character_below_its_separator(parts: tuple[str, ...]) -> None:
    assert min(join(*parts), default="#") >= "#"


def test_a_kind_is_the_first_word_of_a_partition() -> None:
    assert kind_of(join("due", 7)) == "due"
    assert kind_of("account") == "account"


def test_a_key_needs_a_part() -> None:
    with pytest.raises(BadInput, match="at least one part") as refused:
        join()
    assert refused.value.code == "bad_key"


@pytest.mark.parametrize("value", [-1, KEY_NUMBER_MAX + 1])
def test_a_number_that_would_not_sort_is_refused(value: int) -> None:
    for make in (number, join):
        with pytest.raises(BadInput, match=str(value)) as refused:
            make(value)
        assert refused.value.code == "bad_key"


@pytest.mark.parametrize("part", [None, True, 1.5, b"x", ["x"], {}, ()])
def test_what_is_neither_text_nor_a_whole_number_is_no_part_of_a_key(part: Any) -> None:
    told = f"text and whole numbers, not {type(part).__name__}"
    with pytest.raises(BadInput, match=told) as refused:
        join("room", part)
    assert refused.value.code == "bad_key"


def test_a_text_of_another_class_is_a_part_like_any_text() -> None:
    class Name(StrEnum):
        CAKE = "tea & cake"

    assert join("room", Name.CAKE) == "room#tea$20&$20cake"


@pytest.mark.parametrize("word", ["\ud800", "a\udfffb"])
def test_a_lone_surrogate_is_refused(word: str) -> None:
    with pytest.raises(BadInput, match="surrogate") as refused:
        join("room", word)
    assert refused.value.code == "bad_key"


@pytest.mark.parametrize("text", ["a$", "a$zz", "$x", "a#b$"])
def test_what_join_did_not_make_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="not an encoded key") as refused:
        split(text)
    assert refused.value.code == "bad_key"


def test_the_prefix_of_applications_is_that_of_no_internal_record() -> None:
    kinds = [kind.partition for kind in all_kinds() if kind.word == kind_of(keys.USER)]
    assert kinds == ["u#{partition}"]


def test_a_key_of_an_application_is_shown_as_it_was_given() -> None:
    for key in (("order", "7"), ("u", "7"), ("u#u#", "#"), ("job#0000", "x#job")):
        assert shown_key(user_key(key)) == key
        assert kind_of(user_key(key)[0]) == "u"


def test_a_name_is_text_of_a_bounded_number_of_bytes() -> None:
    for name in ("a", "#", "é" * 128, "x" * 256, "a b", "* all"):
        keys.admit_name(name, "a lock's name", 256)
    for name, message in (
        ("", "a pump's name must have 1 to 256 bytes, not 0"),
        ("é" * 128 + "x", "a pump's name must have 1 to 256 bytes, not 257"),
        ("\ud800", "a pump's name has control characters or lone surrogates"),
        ("a\x1fb", "a pump's name has control characters or lone surrogates"),
        ("a\n", "a pump's name has control characters or lone surrogates"),
        (7, "a pump's name must be text, not int"),
    ):
        with pytest.raises(BadInput, match=message) as raised:
            keys.admit_name(name, "a pump's name", 256)
        assert raised.value.code == "bad_name"


def test_a_name_in_a_namespace_is_one_word_and_the_default_adds_nothing() -> None:
    assert keys.qualified("", "orders") == "orders"
    assert keys.unqualified("orders") == ("", "orders")
    for namespace, name in (("team", "orders"), ("team", ""), ("a", "team")):
        word = keys.qualified(namespace, name)
        assert keys.unqualified(word) == (namespace, name)
        assert keys.split(keys.join("ready", 7, word))[2] == word
    # All names of a namespace are next to each other, and no name of another one is among them.
    words = [keys.qualified(n, name) for n in ("", "a", "ab") for name in ("a", "ab", "z")]
    encoded = sorted(keys.join(word) for word in words)
    of_a = [keys.unqualified(keys.split(word)[0])[0] == "a" for word in encoded]
    assert of_a.count(True) == 3
    assert "TTT" in "".join("T" if own else "F" for own in of_a)
