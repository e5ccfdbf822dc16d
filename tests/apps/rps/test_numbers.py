"""Phone numbers come in many ways, and are one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.rps.numbers import normalise
from onceward.errors import BadInput


@pytest.mark.parametrize(
    ("written", "country", "number"),
    [
        ("+12025550101", "", "+12025550101"),
        (" +1 (202) 555-0101 ", "", "+12025550101"),
        ("0012025550101", "", "+12025550101"),
        ("202.555.0101", "1", "+12025550101"),
        ("0171/5550101", "49", "+491715550101"),
        ("00491715550101", "1", "+491715550101"),
        ("+1234567", "", "+1234567"),
        ("+" + "1" * 15, "", "+" + "1" * 15),
        ("+44\u00a020\u20117946\u20110000", "49", "+442079460000"),
    ],
)
def test_a_number_is_the_same_however_it_is_written(
    written: str, country: str, number: str
) -> None:
    assert normalise(written, country) == number


@pytest.mark.parametrize(
    "written",
    [
        *("", "+", "12345", "2025550101", "Ann", "+1202555010x", "+" + "1" * 16),
        *("+012025550101", "whatsapp:+12025550101", "++12025550101", "+123456"),
        "+\u0661\u0662\u0660\u0662\u0665\u0665\u0665\u0660\u0661",
    ],
)
def test_what_is_no_number_is_refused(written: str) -> None:
    with pytest.raises(BadInput) as refused:
        normalise(written, "")
    assert refused.value.code == "wrong_type"
    assert refused.value.kind.status == 422


@pytest.mark.parametrize("written", ["", "12", "+1", "+2025550101x"])
def test_a_country_makes_no_number_of_what_is_none(written: str) -> None:
    with pytest.raises(BadInput):
        normalise(written, "49")


@given(st.text(), st.sampled_from(["", "1", "49"]))
def test_any_text_is_a_number_that_stays_as_it_is_or_refused(text: str, country: str) -> None:
    try:
        number = normalise(text, country)
    except BadInput:
        return
    assert normalise(number, country) == number
    assert number[0] == "+"
    assert number[1:].isascii()
    assert 7 <= len(number[1:]) <= 15
