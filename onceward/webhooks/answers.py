"""Classification of responses: success, retry after a delay, or permanent failure.

These are the conventions of webhooks: 2xx is success, 410 disables the receiver, and everything
else is retried. Redirects are failures; they are not followed because they could lead to any
address.
"""

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http import HTTPStatus

import msgspec

from onceward import limits
from onceward.errors import AddressRefused, BadInput, OncewardError, Unreachable

_STATUSES = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}

_TOO_MUCH = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


class Answer(msgspec.Struct, frozen=True):
    """The response of an endpoint."""

    status: int
    retry_after_s: float | None
    """The delay that the response asks for, within limits."""
    body: bytes
    """The first part of the body."""
    took_s: float
    sent: int = 1
    """How many times the request was sent: twice if a reused connection was closed by the
    receiver."""


class Outcome(StrEnum):
    """The action after a call."""

    DELIVERED = "delivered"
    AGAIN = "again"
    GONE = "gone"
    """The endpoint accepts no further calls of any kind."""
    NEVER = "never"
    """This call can never succeed; other calls to the same endpoint can."""


class Verdict(msgspec.Struct, frozen=True):
    """The result of a call."""

    outcome: Outcome
    not_before_s: float | None
    """The time from now for which the endpoint asks not to be called."""
    answered: bool | None
    """Whether there was a response of any kind, so the host is up. None if the failure is local."""
    well: bool
    """Whether the response shows a healthy receiver: not failing, not overloaded."""
    line: str
    """A line for the log of attempts: printable and of limited length."""


def judge(result: Answer | OncewardError) -> Verdict:
    """Classify a response, or the error of a call without one."""
    if isinstance(result, Answer):
        if 200 <= result.status < 300:
            return Verdict(Outcome.DELIVERED, None, True, True, _line(result))
        if result.status == HTTPStatus.GONE:
            return Verdict(Outcome.GONE, None, True, True, _line(result))
        well = result.status < 500 and result.status not in _TOO_MUCH
        return Verdict(Outcome.AGAIN, result.retry_after_s, True, well, _line(result))
    outcome = Outcome.AGAIN
    # DNS can return a wrong address for a while, so a refused address is retried.
    if isinstance(result, BadInput) and not isinstance(result, AddressRefused):
        outcome = Outcome.NEVER
    line = _printable(result.message)
    if isinstance(result, Unreachable):
        if result.sent > 1:
            line += ", sent twice"
        if result.ours:
            return Verdict(outcome, None, None, False, line)
    return Verdict(outcome, None, False, False, line)


def read_retry_after(value: str, date: str | None, now_ms: int) -> float | None:
    """Return the seconds of a `Retry-After` header within limits; None if it is malformed.

    A date is relative to the `date` header of the response, or to our clock without one.
    """
    value = value.strip()
    if re.fullmatch(r"[0-9]+", value):
        # More digits exceed the limit anyway, and parsing long numbers is slow.
        return min(float(value.lstrip("0")[:10] or 0), limits.RETRY_AFTER_S_MAX)
    at_s = _read_date(value)
    if at_s is None:
        return None
    since_s = _read_date(date) if date else None
    if since_s is None:
        since_s = now_ms / 1000
    return max(0.0, min(at_s - since_s, limits.RETRY_AFTER_S_MAX))


def _read_date(text: str) -> float | None:
    try:
        read = parsedate_to_datetime(text)
        # One of the formats has no zone; it is always UTC.
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _line(answer: Answer) -> str:
    took_ms = answer.took_s * 1000
    took = f"{took_ms:.0f} ms" if took_ms < 1000 else f"{answer.took_s:.1f} s"
    line = f"{_STATUSES.get(answer.status, answer.status)} in {took}"
    if answer.sent > 1:
        line += ", sent twice"
    if answer.body:
        line += f": {_printable(answer.body.decode('utf-8', 'replace'))}"
    return line


def _printable(text: str) -> str:
    """The start of a text on one line, without control characters."""
    text = text[: limits.ANSWER_TEXT_CHARS * 5]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)
    text = " ".join(text.split())
    if len(text) > limits.ANSWER_TEXT_CHARS:
        text = text[: limits.ANSWER_TEXT_CHARS] + "…"
    return text
