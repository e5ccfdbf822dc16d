"""The same report always leads to the same decision, and says why."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.credit import limits
from apps.credit.decision import (
    Report,
    Tradeline,
    Verification,
    decide,
    read_report,
    report_of,
)

GOOD = Report("B1", 720, [Tradeline("card", 100, 1_000)], Verification(True, True))


def changed(**fields: object) -> Report:
    return msgspec.structs.replace(GOOD, **fields)


@pytest.mark.parametrize(
    ("report", "outcome", "reason"),
    [
        (GOOD, "approved", "the score is 720"),
        (changed(score=680), "approved", "the score is 680"),
        (changed(score=679), "review", "the score is 679, less than 680"),
        (changed(score=580), "review", "the score is 580, less than 680"),
        (changed(score=579), "declined", "the score is 579, less than 580"),
        (
            changed(tradelines=[Tradeline("loan", 0, 0, 91)]),
            "declined",
            "an account is 91 days late, more than 90",
        ),
        (changed(tradelines=[Tradeline("loan", 0, 0, 90)]), "approved", "the score is 720"),
        (changed(tradelines=[]), "approved", "the score is 720"),
        (changed(tradelines=[Tradeline("card", 900, 1_000)]), "approved", "the score is 720"),
        (
            changed(tradelines=[Tradeline("card", 901, 1_000)]),
            "review",
            "90% of all limits are used",
        ),
        (changed(verification=Verification(False, True)), "review", "the name is not verified"),
        (changed(verification=Verification(True, False)), "review", "the address is not verified"),
    ],
)
def test_rules(report: Report, outcome: str, reason: str) -> None:
    decision = decide(report)
    assert (decision.outcome, decision.reasons) == (outcome, [reason])


@given(st.from_type(Report))
def test_every_report_leads_to_a_decision_with_reasons(report: Report) -> None:
    assert decide(report).reasons
    assert report_of(msgspec.to_builtins(report)) == report


def test_an_account_of_which_nothing_else_is_said_is_not_late() -> None:
    plain = msgspec.to_builtins(GOOD)
    del plain["tradelines"][0]["late_days"]
    assert report_of(plain).tradelines[0].late_days == 0


def test_what_is_no_report_is_refused() -> None:
    for answer in (b"", b"{}", b"[]", b'{"score": "good"}'):
        with pytest.raises(msgspec.DecodeError):
            read_report(answer)


def test_a_report_may_be_as_large_as_can_be_kept_and_no_larger() -> None:
    read = read_report(msgspec.json.encode(GOOD))
    room = limits.ANSWER_BYTES_MAX - len(msgspec.json.encode(read))
    fits, longer = (changed(number=GOOD.number + "x" * size) for size in (room, room + 1))
    assert read_report(msgspec.json.encode(fits)) == fits
    with pytest.raises(
        msgspec.ValidationError, match="300,001 bytes; at most 300,000 can be stored"
    ):
        read_report(msgspec.json.encode(longer))
