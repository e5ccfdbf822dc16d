"""An example bureau: slow, sometimes failing, and it counts its pulls.

It simulates a credit bureau. With keys, a request with a known `Idempotency-Key` gets the first
report; without keys, every request is another pull.
"""

from collections.abc import Callable
from typing import Any
from zlib import crc32

import msgspec

from apps.credit.decision import Report, Tradeline, Verification
from onceward import Clock
from onceward.web import Request, Response, Route, parse


class Ask(msgspec.Struct, omit_defaults=True):
    """A request for a pull."""

    reference: str
    applicant: dict[str, Any] = {}


class Stats(msgspec.Struct):
    """The counts until now."""

    asked: int = 0
    refused: int = 0
    """Requests that failed before a pull."""
    repeated: int = 0
    """Requests with a known key."""
    lost: int = 0
    """Pulls whose response was an error."""
    begun: int = 0
    under_way: int = 0
    done: int = 0
    references: int = 0
    most: int = 0
    """The highest number of pulls of one reference."""


class Bureau:
    """Simulates pulls of credit reports."""

    def __init__(
        self,
        fraction: Callable[[], float],
        *,
        clock: Clock | None = None,
        pull_s: float = 0.0,
        keys: bool = False,
        failing: float = 0.0,
    ) -> None:
        """`fraction` returns random numbers; `failing` is the share of requests that fail, before a
        pull or, with keys, after it."""
        self.stats = Stats()
        self.pulls: dict[str, list[Report]] = {}
        """All started pulls by reference, regardless of the response."""
        self._fraction = fraction
        self._clock = clock or Clock()
        self._pull_s = pull_s
        self._keys = keys
        self._failing = failing
        self._known: dict[str, Report | None] = {}
        """Reports by key; None while a pull is running."""

    async def pull(self, request: Request) -> Response:
        ask = parse(await request.body(), Ask)
        self.stats.asked += 1
        key = request.header(b"idempotency-key") if self._keys else None
        if key in self._known:
            self.stats.repeated += 1
            known = self._known[key]
            return _busy(409) if known is None else Response.of(known)
        if self._fraction() < self._failing:
            self.stats.refused += 1
            return _busy(503)
        report = self._begin(ask.reference)
        if key is not None:
            self._known[key] = None
        await self._clock.sleep(self._pull_s * (1 + self._fraction() / 10))
        self.stats.under_way -= 1
        self.stats.done += 1
        if key is not None:
            self._known[key] = report
            if self._fraction() < self._failing:
                self.stats.lost += 1
                return Response(500, b"{}")
        return Response.of(report)

    async def ask(self, request: Request) -> Response:
        """The answer of the bureau's office: all pulls of a reference."""
        return Response.of(self.pulls.get(request.parameters["reference"], []))

    async def tell(self, request: Request) -> Response:
        return Response.of(self.stats)

    def _begin(self, reference: str) -> Report:
        self.stats.begun += 1
        self.stats.under_way += 1
        report = make_report(reference, f"B{self.stats.begun:06d}")
        pulls = self.pulls.setdefault(reference, [])
        pulls.append(report)
        self.stats.references = len(self.pulls)
        self.stats.most = max(self.stats.most, len(pulls))
        return report

    @property
    def routes(self) -> list[Route]:
        return [
            Route("POST", "/bureau/pulls", lambda _, r: self.pull(r), "Pull credit"),
            Route("GET", "/bureau/pulls/{reference}", lambda _, r: self.ask(r), "Ask the office"),
            Route("GET", "/bureau", lambda _, r: self.tell(r), "Show counts"),
        ]


def make_report(reference: str, number: str) -> Report:
    """The report of an applicant: the same person has the same history."""
    chance = crc32(reference.encode())
    lines = [
        Tradeline("card", float(chance % 7_000), 8_000.0, 30 * (chance % 5)),
        Tradeline("loan", float(chance % 15_000), 20_000.0),
    ]
    return Report(number, 550 + chance % 250, lines, Verification(True, chance % 10 != 0))


def _busy(status: int) -> Response:
    return Response(status, b'{"error": "not now"}', headers=[(b"retry-after", b"1")])
