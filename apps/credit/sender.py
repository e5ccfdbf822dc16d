"""An example sender, as a process: sends each of its notifications many times, as an org does that
hears no acknowledgement.

python -m apps.credit.sender '{"url": …, "organisation": …, "applications": 9, "times": 5}'

Envelopes hold up to a hundred notifications, out of order; now and then a rule fires again, and a
new notification has fresher fields. Each envelope that was answered makes a line of JSON.
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

_TIMEOUT_S = 60.0  # as long as Salesforce waits
_FAILURES_MAX = 20
_HEADERS = {"Content-Type": "text/xml; charset=utf-8", "SOAPAction": '""'}
_ACK = b"<Ack>true</Ack>"
_SESSION = "00D!a-session-that-nobody-should-keep"


class Plan(msgspec.Struct):
    """What to send, and where."""

    url: str
    organisation: str
    applications: int
    times: int
    last_s: float = 0.0
    """Over how much time it is spread."""
    fresher: float = 0.05
    """The share of notifications that are new ones."""
    hang_up: float = 0.0
    """The share of envelopes after which the sender closes the connection without waiting for the
    acknowledgement, and sends them again later."""


class Answered(msgspec.Struct):
    """What came of one envelope."""

    notifications: int
    took_s: float
    acknowledged: bool
    said: str = ""


def opportunity(number: int) -> str:
    """The id of an application."""
    return long_id(f"006{number:012d}")


def send_all(plan: Plan, fraction: "Chance") -> Iterator[Answered]:
    """Send everything, in no order, one envelope after the other."""
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
            numbers += some  # later; so it may last longer


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
    """Send an envelope, and be gone before it is answered."""
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
