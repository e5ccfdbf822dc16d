"""An example Salesforce endpoint: it receives results and deduplicates them by id.

Decisions, tradelines and verifications are posted to it.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from onceward.web import Request, Response, Route, parse


class Result(msgspec.Struct, omit_defaults=True, frozen=True):
    """One result of a pull."""

    opportunity: str
    kind: str
    pull: str
    value: Any = None


class Stats(msgspec.Struct):
    """The counts until now."""

    came: int = 0
    refused: int = 0
    repeated: int = 0
    """Results with a known id."""
    different: int = 0
    """Results with a known id and different contents: must be 0."""
    twice: int = 0
    """Results that arrived before under another id: must be 0."""
    results: int = 0
    statuses: int = 0
    """Pulls that were reported as failed or in doubt."""
    applications: int = 0
    """Applications with all three results."""


class Salesforce:
    """Receives results."""

    def __init__(self, fraction: Callable[[], float], *, failing: float = 0.0) -> None:
        """`fraction` returns random numbers; `failing` is the share of results that are rejected,
        or stored and answered with an error."""
        self.stats = Stats()
        self.results: dict[str, Result] = {}
        self._kinds: dict[str, set[str]] = {}
        self._statuses: set[str] = set()
        self._fraction = fraction
        self._failing = failing

    async def take(self, request: Request) -> Response:
        id_ = request.header(b"idempotency-key")
        if not id_:
            return Response(400, b'{"error": "there is no Idempotency-Key"}')
        result = parse(await request.body(), Result)
        self.stats.came += 1
        chance = self._fraction()
        if chance < self._failing / 2:
            self.stats.refused += 1
            return Response(503, b"{}")
        self._keep(id_, result)
        return Response(500 if chance < self._failing else 201, b"{}")

    def _keep(self, id_: str, result: Result) -> None:
        known = self.results.get(id_)
        if known is not None:
            self.stats.repeated += 1
            self.stats.different += known != result
            return
        self.results[id_] = result
        if result.kind == "status":
            # A status may arrive several times for a pull, each with news.
            self._statuses.add(result.pull)
            self.stats.statuses = len(self._statuses)
            return
        kinds = self._kinds.setdefault(result.pull, set())
        self.stats.twice += result.kind in kinds
        kinds.add(result.kind)
        self.stats.results += 1
        self.stats.applications += len(kinds) == 3

    async def tell(self, request: Request) -> Response:
        return Response.of(self.stats)

    @property
    def routes(self) -> list[Route]:
        return [
            Route("POST", "/salesforce/results", lambda _, r: self.take(r), "Receive a result"),
            Route("GET", "/salesforce", lambda _, r: self.tell(r), "Show counts"),
        ]
