"""Classification of responses: success, retry after a delay, or permanent failure.

As receivers of webhooks expect it: 2xx is delivered, 410 says never again, and all else may be
better the next time. A redirect is not followed, since it could lead anywhere, so it is a failure
like others.
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
    """What an endpoint answered."""

    status: int
    retry_after_s: float | None
    """How long it asks to be left alone, within limits."""
    body: bytes
    """The first part of it."""
    took_s: float
    sent: int = 1
    """How often the request was sent: twice, if the first time met a connection's end."""


class Outcome(StrEnum):
    """What is to be done after a call."""

    DELIVERED = "delivered"
    AGAIN = "again"
    GONE = "gone"
    """The endpoint wants no calls any more, of any kind."""
    NEVER = "never"
    """This call can never be made as it is; others to the same endpoint may."""


class Verdict(msgspec.Struct, frozen=True):
    """What a call has come to."""

    outcome: Outcome
    not_before_s: float | None
    """The endpoint asks not to be called again for so long, from now on."""
    answered: bool | None
    """Whether there was an answer, good or bad: the host is alive. None if the reason is with us,
    and says nothing of the host."""
    well: bool
    """Whether the answer is not one of a receiver that fails, or has too much to do."""
    line: str
    """For the log of attempts: printable, on one line, of limited length."""


def judge(result: Answer | OncewardError) -> Verdict:
    """What an answer means, or the error in its place."""
    if isinstance(result, Answer):
        if 200 <= result.status < 300:
            return Verdict(Outcome.DELIVERED, None, True, True, _line(result))
        if result.status == HTTPStatus.GONE:
            return Verdict(Outcome.GONE, None, True, True, _line(result))
        well = result.status < 500 and result.status not in _TOO_MUCH
        return Verdict(Outcome.AGAIN, result.retry_after_s, True, well, _line(result))
    outcome = Outcome.AGAIN
    # A name can lead to a wrong address for a while, so that is tried again.
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
    """How many seconds a `Retry-After` asks for, within limits; None if it is not understood.

    A time is taken relative to the `date` of the answer, by the same clock; where there is none,
    relative to ours.
    """
    value = value.strip()
    if re.fullmatch(r"[0-9]+", value):
        # So many digits are beyond the limit in any case, and more take long to read.
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
        # One of the ways to write it names no zone; it is always this one.
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
    """The start of a text, on one line, without what could mislead a terminal or a reader."""
    text = text[: limits.ANSWER_TEXT_CHARS * 5]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)
    text = " ".join(text.split())
    if len(text) > limits.ANSWER_TEXT_CHARS:
        text = text[: limits.ANSWER_TEXT_CHARS] + "…"
    return text
