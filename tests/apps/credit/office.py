"""Credit intake in virtual time, with a bureau and a Salesforce that can be told what to do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from apps.credit import calls
from apps.credit.bureau import make_report
from apps.credit.credit import PULLS, Credit
from apps.credit.settings import Settings
from apps.credit.soap import read
from onceward.app import App
from onceward.clock import Clock
from onceward.schedule import Job
from onceward.testing.clock import VirtualClock
from tests.apps.credit.envelopes import ORGANISATION, envelope
from tests.work.apps import Apps

SECRET = "opensesame" + "0" * 10
SETTINGS = Settings(
    organisations=(ORGANISATION,),
    secret=SECRET,
    bureau="http://bureau.example/pulls",
    bureau_authorization="Bearer of pulls",
    salesforce="http://salesforce.example/results",
    salesforce_authorization="Bearer of results",
    decide="apps.credit.decision:decide",
    lease_s=2,
    concurrency=8,
)


class World:
    """What is outside: takes the place of `calls`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock: Clock = VirtualClock()
        self.pull_s = 0.0
        self.pulls: list[tuple[str, str | None]] = []
        """References and keys, as they came."""
        self.reports: dict[str, Any] = {}
        self.pulling = asyncio.Event()
        self.errors: list[BaseException] = []
        """What the next pulls come to, in place of reports."""
        self.told: list[tuple[str, Any]] = []
        self.refusals: list[Exception] = []
        """What the next results come to."""
        monkeypatch.setattr(calls, "pull", self.pull)
        monkeypatch.setattr(calls, "deliver", self.deliver)

    async def pull(
        self,
        url: str,
        reference: str,
        fields: Any,
        *,
        key: str | None,
        timeout_s: float,
        authorization: str,
    ) -> Any:
        assert (url, authorization) == (SETTINGS.bureau, SETTINGS.bureau_authorization)
        self.pulls.append((reference, key))
        self.pulling.set()
        await self.clock.sleep(self.pull_s)
        if self.errors:
            raise self.errors.pop(0)
        name = key or f"{len(self.pulls)}"
        if name not in self.reports:
            report = make_report(reference, f"B{len(self.reports) + 1}")
            self.reports[name] = msgspec.to_builtins(report)
        return self.reports[name]

    async def deliver(self, url: str, id_: str, result: Any, *, authorization: str) -> str:
        assert (url, authorization) == (SETTINGS.salesforce, SETTINGS.salesforce_authorization)
        self.told.append((id_, result))
        if self.refusals:
            raise self.refusals.pop(0)
        return "201"


def make(apps: Apps, **changes: Any) -> Credit:
    """One more process of it, to be started."""
    settings = msgspec.structs.replace(SETTINGS, **changes)
    return Credit(settings, apps.make(node_lease_s=1, drain_s=settings.drain_s))


@asynccontextmanager
async def open_office(**changes: Any) -> AsyncIterator[tuple[Apps, Credit]]:
    """One process of it, at work."""
    apps = Apps(shared=False)
    credit = make(apps, **changes)
    async with credit.app:
        yield apps, credit
    assert apps.problems == []


async def take(credit: Credit, *numbers: int) -> list[str]:
    """Take an envelope in."""
    repeats: list[str] = [*await credit.accept(read(envelope(*numbers)))]
    return repeats


async def ended(app: App, id_: str) -> Job:
    """A job of the queue of pulls, once it has ended, and its results are out."""
    job = await app.wait(id_, 1_000)
    assert job.queue == PULLS
    return job
