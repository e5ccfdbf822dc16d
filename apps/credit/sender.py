"""An example sender process that repeats each notification many times, as after lost
acknowledgements.

    python -m apps.credit.sender '{"url": …, "organisation": …, "applications": 9, "times": 5}'

Envelopes have up to a hundred notifications, out of order. Some are new notifications with changed
fields. Each response makes a line of JSON.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from time import sleep
from urllib.parse import urlsplit

import msgspec

from apps.credit import limits
from apps.credit.outbound import write
from apps.credit.record_id import long_id
from onceward import Clock, Ids

_TIMEOUT_S = 60.0  # the timeout of Salesforce
_FAILURES_MAX = 20
_HEADERS = {"Content-Type": "text/xml; charset=utf-8", "SOAPAction": '""'}
_ACK = b"<Ack>true</Ack>"
_SESSION = "00D!a-session-that-nobody-should-keep"


class Plan(msgspec.Struct):
    """The target and amount of messages."""

    url: str
    organisation: str
    applications: int
    times: int
    last_s: float = 0.0
    """The time over which they are spread."""
    fresher: float = 0.05
    """The share of new notifications."""
    hang_up: float = 0.0
    """The share of envelopes after which the sender closes the connection without waiting for the
    acknowledgement, and repeats them later."""


class Answered(msgspec.Struct):
    """The result of one envelope."""

    notifications: int
    took_s: float
    acknowledged: bool
    said: str = ""


def opportunity(number: int) -> str:
    """The id of an application."""
    return long_id(f"006{number:012d}")


def send_all(plan: Plan, fraction: "Chance") -> Iterator[Answered]:
    """Send everything in random order, one envelope after the other."""
    failures = 0
    numbers = sorted(list(range(plan.applications)) * plan.times, key=lambda _: fraction())
    clock, count = Clock(), len(numbers)
    began_ns = clock.elapsed_ns()
    while numbers:
        due_s = plan.last_s * (1 - len(numbers) / count)
        sleep(max(0.0, due_s - (clock.elapsed_ns() - began_ns) / 1e9))
        size = 1 + int(fraction() * limits.SOAP_NOTIFICATIONS_MAX)
        some, numbers = numbers[:size], numbers[size:]
        envelope = write(
            plan.organisation,
            [_notification(number, plan, fraction) for number in some],
            session=_SESSION,
        )
        if fraction() < plan.hang_up:
            _hang_up(plan.url, envelope)
            numbers += some
            continue
        answered = _send(plan.url, envelope, len(some))
        yield answered
        if not answered.acknowledged and failures < _FAILURES_MAX:
            failures += 1
            numbers += some  # repeated later, so the run may last longer


class Chance:
    """Random numbers, from 0 to 1."""

    def __init__(self) -> None:
        self._ids = Ids(Clock().now_ms)

    def __call__(self) -> float:
        return self._ids.fraction()


def _notification(number: int, plan: Plan, fraction: Chance) -> tuple[str, dict[str, str | None]]:
    fields: dict[str, str | None] = {
        "Id": opportunity(number),
        "Name": f"Applicant {number} & family",
        "Amount": f"{1_000 + number}.0",
        "StageName": None,
    }
    if fraction() < plan.fresher:
        version = 1 + int(fraction() * 9)
        fields["Amount"] = f"{1_000 + number + version}.0"
        return f"04l{version:03d}{number:09d}", fields
    return f"04l{number:012d}", fields


def _hang_up(url: str, envelope: bytes) -> None:
    """Send an envelope and close the connection before the response."""
    parts = urlsplit(url)
    with suppress(OSError), closing(HTTPConnection(parts.netloc, timeout=_TIMEOUT_S)) as connection:
        connection.request("POST", parts.path, envelope, _HEADERS)


def _send(url: str, envelope: bytes, notifications: int) -> Answered:
    parts = urlsplit(url)
    clock = Clock()
    began_ns = clock.elapsed_ns()
    try:
        with closing(HTTPConnection(parts.netloc, timeout=_TIMEOUT_S)) as connection:
            connection.request("POST", parts.path, envelope, _HEADERS)
            answer = connection.getresponse()
            text = answer.read()
            acknowledged = answer.status == 200 and _ACK in text
            said = "" if acknowledged else f"{answer.status} {text[:300]!r}"
    except (OSError, HTTPException) as error:
        acknowledged, said = False, f"{type(error).__name__}: {error}"
    return Answered(notifications, (clock.elapsed_ns() - began_ns) / 1e9, acknowledged, said)


def main(arguments: Sequence[str]) -> None:
    [told] = arguments
    for answered in send_all(msgspec.json.decode(told, type=Plan), Chance()):
        sys.stdout.write(f"{msgspec.json.encode(answered).decode()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
