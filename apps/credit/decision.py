"""What a bureau reports, what is decided by it, and an example of rules: plain values.

`decide` is an example. An operator names a function of its own in the setting `decide`.
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
    """What of an applicant the bureau knows to be true."""

    name: bool
    address: bool


class Report(msgspec.Struct, frozen=True):
    """What a pull brings."""

    number: str
    """The bureau's own, of this pull."""
    score: int
    tradelines: list[Tradeline]
    verification: Verification


class Decision(msgspec.Struct, frozen=True):
    """What is decided, and why."""

    outcome: Outcome
    reasons: list[str]


Decide = Callable[[Report, Mapping[str, str | None]], Decision | Awaitable[Decision]]
"""Decides by a report and the fields of the application. It may be called again after an error;
what it returns is recorded, and holds for the pull."""


def decision_of(value: Any) -> Decision:
    """A decision, as a function returned it or a step recorded it. Raises
    `msgspec.ValidationError` for what is none, or too long to be kept."""
    decision = msgspec.convert(value, Decision, from_attributes=True)
    size_bytes, most = len(msgspec.json.encode(decision.reasons)), limits.REASONS_BYTES_MAX
    if size_bytes > most:
        raise msgspec.ValidationError(f"reasons of {size_bytes:,} bytes, and {most:,} can be kept")
    return decision


def read_report(answer: bytes) -> Report:
    """The report in an answer. Raises `msgspec.DecodeError` for what is none, or too large to be
    kept."""
    return _admit(msgspec.json.decode(answer, type=Report))


def report_of(recorded: Any) -> Report:
    """The report that a step has recorded, or a person has entered. Raises
    `msgspec.ValidationError`, as above."""
    return _admit(msgspec.convert(recorded, Report))


def _admit(report: Report) -> Report:
    size_bytes, most = len(msgspec.json.encode(report)), limits.ANSWER_BYTES_MAX
    if size_bytes > most:
        raise msgspec.ValidationError(f"it has {size_bytes:,} bytes, and {most:,} can be kept")
    return report


def decide(report: Report, fields: Mapping[str, str | None] | None = None) -> Decision:
    """An example: declined for a low score or long arrears, a person's business where something is
    unclear, approved else."""
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
