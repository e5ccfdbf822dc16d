"""The same record is the same, by its short id and by its long one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.credit.record_id import long_id
from onceward.errors import BadInput

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def test_known_ids_have_their_known_long_forms() -> None:
    assert long_id("001A0000006Vm9r") == "001A0000006Vm9rIAC"
    assert long_id("00D000000000001") == "00D000000000001EAA"
    assert long_id("a" * 15) == "a" * 15 + "AAA"
    assert long_id("A" * 15) == "A" * 15 + "555"


@given(st.text(LETTERS, min_size=15, max_size=15))
def test_the_long_form_stays_as_it_is_and_tells_case(short: str) -> None:
    long = long_id(short)
    assert (long[:15], long_id(long)) == (short, long)
    if short.swapcase() != short:
        assert long_id(short.swapcase())[15:] != long[15:]
        with pytest.raises(BadInput, match="damaged"):
            long_id(short.swapcase() + long[15:])


@pytest.mark.parametrize(
    "text", ["", "006", "0" * 14, "0" * 16, "0" * 19, "006-00000000001", "ä" * 15]
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="not the id"):
        long_id(text)
