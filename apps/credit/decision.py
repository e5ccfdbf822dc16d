"""Reports of a bureau, decisions, and example rules, as plain values.

`decide` is an example. Operators name their own function in the setting `decide`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

from apps.credit import limits

SCORE_GOOD = 680
SCORE_LEAST = 580
LATE_DAYS_MOST = 90
DEBT_SHARE_MOST = 0.9

Outcome = Literal["approved", "review", "declined"]


class Tradeline(msgspec.Struct, frozen=True):
    """One account of an applicant."""

    kind: str
    balance: float
    limit: float
    late_days: int = 0


class Verification(msgspec.Struct, frozen=True):
    """The data of an applicant that the bureau has verified."""

    name: bool
    address: bool


class Report(msgspec.Struct, frozen=True):
    """The result of a pull."""

    number: str
    """The bureau's number of this pull."""
    score: int
    tradelines: list[Tradeline]
    verification: Verification


class Decision(msgspec.Struct, frozen=True):
    """A decision and its reasons."""

    outcome: Outcome
    reasons: list[str]


Decide = Callable[[Report, Mapping[str, str | None]], Decision | Awaitable[Decision]]
"""Decides by a report and the fields of the application. It may be called again after an error; the
recorded result is final for the pull."""


def decision_of(value: Any) -> Decision:
    """Decode a decision from a function or a recorded step. Raises `msgspec.ValidationError` for an
    invalid or oversized one."""
    decision = msgspec.convert(value, Decision, from_attributes=True)
    size_bytes, most = len(msgspec.json.encode(decision.reasons)), limits.REASONS_BYTES_MAX
    if size_bytes > most:
        raise msgspec.ValidationError(
            f"the reasons have {size_bytes:,} bytes; at most {most:,} can be stored"
        )
    return decision


def read_report(answer: bytes) -> Report:
    """Decode a report from a response. Raises `msgspec.DecodeError` for an invalid or oversized
    one."""
    return _admit(msgspec.json.decode(answer, type=Report))


def report_of(recorded: Any) -> Report:
    """Decode a report that a step recorded or an operator entered. Raises
    `msgspec.ValidationError`."""
    return _admit(msgspec.convert(recorded, Report))


def _admit(report: Report) -> Report:
    size_bytes, most = len(msgspec.json.encode(report)), limits.ANSWER_BYTES_MAX
    if size_bytes > most:
        raise msgspec.ValidationError(
            f"it has {size_bytes:,} bytes; at most {most:,} can be stored"
        )
    return report


def decide(report: Report, fields: Mapping[str, str | None] | None = None) -> Decision:
    """An example: declined for a low score or long arrears, manual review if something is unclear,
    otherwise approved."""
    against = []
    if report.score < SCORE_LEAST:
        against.append(f"the score is {report.score}, less than {SCORE_LEAST}")
    late_days = max((line.late_days for line in report.tradelines), default=0)
    if late_days > LATE_DAYS_MOST:
        against.append(f"an account is {late_days} days late, more than {LATE_DAYS_MOST}")
    if against:
        return Decision("declined", against)
    unclear = []
    if report.score < SCORE_GOOD:
        unclear.append(f"the score is {report.score}, less than {SCORE_GOOD}")
    limit = sum(line.limit for line in report.tradelines)
    if limit and (share := sum(line.balance for line in report.tradelines) / limit) > (
        DEBT_SHARE_MOST
    ):
        unclear.append(f"{share:.0%} of all limits are used")
    for what in ("name", "address"):
        if not getattr(report.verification, what):
            unclear.append(f"the {what} is not verified")
    if unclear:
        return Decision("review", unclear)
    return Decision("approved", [f"the score is {report.score}"])
