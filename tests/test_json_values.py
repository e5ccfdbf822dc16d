"""Values become JSON and come back, and what JSON cannot say is refused."""

import datetime
import decimal
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.errors import BadInput, OncewardError
from onceward.json_values import decode, encode

A = ("p", "a")


class Seat(msgspec.Struct):
    name: str
    since_ms: int = 0


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab#", max_size=3), inner),
    max_leaves=8,
)


@given(json_values)
def test_every_json_value_survives(value: Any) -> None:
    text = encode(value, A)
    assert text
    assert decode(text, Any, A) == value


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        [1, {"a": -math.inf}],
        {"a": (None, math.nan)},
        {math.inf},
        Seat("x", math.nan),  # type: ignore[arg-type]
        [10**5000],
        object(),
        lambda: 0,
        {"a": object()},
        "\ud800",
        {(1, 2): 3},
        1j,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(BadInput) as refused:
        encode(value, A)
    assert refused.value.code == "bad_value"
    assert "('p', 'a')" in refused.value.message


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(BadInput) as refused:
        encode(endless, A)
    assert refused.value.code == "bad_value"


@pytest.mark.parametrize(
    "value",
    [None, [None, 1.5], {"null": 1.0}, {"a": None, "b": {1, 2}}, datetime.date(2030, 1, 1),
     decimal.Decimal("1.5"), b"bytes"],
    ids=repr,
)  # fmt: skip
def test_null_and_what_has_a_text_form_are_fine(value: Any) -> None:
    assert encode(value, A)


@pytest.mark.parametrize(
    "text",
    [b"{", b"\xff", b'"\xff"', b"", b"nonsense", b"[1] 2", b"9" * 5_000, b"[" * 99_999],
    ids=lambda text: text[:9].decode(errors="replace"),
)
def test_a_record_that_is_no_json_is_reported_as_damaged(text: bytes) -> None:
    with pytest.raises(OncewardError, match=r"\('p', 'a'\)") as damaged:
        decode(text, Any, A)
    assert damaged.value.code == "damaged"


def test_a_record_of_another_type_is_reported_as_damaged() -> None:
    with pytest.raises(OncewardError, match="name") as damaged:
        decode(b'{"name": 5}', Seat, A)
    assert damaged.value.code == "damaged"


def test_what_is_json_already_stays_as_it_is() -> None:
    assert encode(msgspec.Raw(b'{"b": 1, "a": 2}'), A) == b'{"b": 1, "a": 2}'


def test_members_come_in_the_order_given_or_sorted() -> None:
    assert encode({"b": 1, "a": {"d": 2, "c": 3}}, A) == b'{"b":1,"a":{"d":2,"c":3}}'
    assert encode({"b": 1, "a": {"d": 2, "c": 3}}, A, "sorted") == b'{"a":{"c":3,"d":2},"b":1}'
