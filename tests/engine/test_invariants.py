import pytest

from onceward import keys
from onceward.engine.base import Record
from onceward.engine.invariants import RULES, due_ms
from onceward.errors import BadInput


def test_a_due_entry_says_when_it_is_due() -> None:
    assert due_ms(keys.join(1_234, "job")) == 1_234


@pytest.mark.parametrize(
    "sort", ["", "job", "1234#job", keys.number(1), "0000000000001.34#job", "000000000000¹234#job"]
)
def test_what_starts_with_no_time_is_no_due_entry(sort: str) -> None:
    with pytest.raises(BadInput):
        due_ms(sort)


def test_a_due_entry_without_a_time_breaks_a_rule() -> None:
    def problems(sort: str) -> list[str]:
        record = Record((keys.join("due", 7), sort), b"{}", 1)
        return [
            problem
            for rule in RULES
            if rule.kind == "due"
            for problem in rule.judge(record, lambda _: None)
        ]

    assert problems(keys.join(5, "job")) == []
    assert problems("soon") == ["'soon' does not start with a time; begin it with keys.number(…)"]
