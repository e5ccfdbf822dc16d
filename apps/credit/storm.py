"""The storm: a load test with thousands of duplicates, pulls longer than leases, and killed
workers.

It runs as processes: a server that receives outbound messages, workers that pull, senders that
repeat messages, and external services (a bureau and Salesforce). Workers are killed and suspended.
At the end everything is counted and checked.
"""

import asyncio
import os
import re
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from apps.credit.bureau import Stats as Pulled
from apps.credit.credit import ANSWER_OWED, KINDS, LATE_ANSWER, PULLS, STEP
from apps.credit.processes import Child
from apps.credit.salesforce import Stats as Told
from apps.credit.sender import Answered, Chance, opportunity
from onceward import BadInput, Clock, NoSuchJob, NotFailed, OncewardError, limits
from onceward.client import Client

ORGANISATION = "00D000000000001EAA"
_LOOK_S = 0.5
# The share of the time over which messages are spread.
_SENDING = 0.6
# The share of envelopes whose sender does not wait for the acknowledgement.
_HANG_UP = 0.05
_SLOTS = 8
# An upper limit for all options, beyond what a machine can handle.
_MANY = 100_000
_TRY_AGAIN = os.EX_TEMPFAIL
# The log message of a worker.
_AT_WORK = "working on the jobs"
_DEPLOYED = "apps.credit.deployed:app"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The parameters of a storm: the options of `python -m apps.credit storm`."""

    applications: int = 200
    times: int = 20
    """How many times each application is sent, by all senders together."""
    senders: int = 4
    workers: int = 8
    keys: bool = True
    """Whether the bureau supports idempotency keys."""
    concurrency: int = 1
    """The number of concurrent pulls of a worker; without keys one, so that a kill interrupts
    one."""
    lease_s: float = 2.0
    pull_leases: float = 3.0
    """The duration of a pull, in leases."""
    failing: float = 0.1
    """The share of external calls that fail."""
    kills: int = 20
    pauses: int = 10
    patience_s: float = 1_800.0

    def __post_init__(self) -> None:
        node_s = limits.NODE_LEASE_MS_MIN / 1000
        for name, least, most in (
            *[(name, 1, _MANY) for name in ("applications", "times", "senders", "workers")],
            *[(name, 0, _MANY) for name in ("kills", "pauses")],
            ("concurrency", 1, _MANY if self.keys else 1),
            ("lease_s", node_s, limits.LEASE_MS_MAX / 1000),
            ("pull_leases", 0.1, 100),
            ("failing", 0, 0.9),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                given = " with --no-keys" if name == "concurrency" and not self.keys else ""
                raise BadInput(
                    f"{_option(name)}{given} must be {least:g} to {most:g}, not {value:g}"
                )
        if self.times % self.senders:
            raise BadInput(
                f"--times must be a multiple of --senders, so that all send the same amount; "
                f"{self.times} is not a multiple of {self.senders}"
            )

    @property
    def pull_s(self) -> float:
        return self.lease_s * self.pull_leases

    @property
    def last_s(self) -> float:
        """The duration without errors."""
        return self.pull_s * self.applications / (self.workers * self.concurrency)


@dataclass
class Course:
    """The progress of a storm."""

    plan: Plan
    envelopes: int = 0
    acknowledged: int = 0
    """Acknowledged notifications, in envelopes."""
    unacknowledged: list[str] = field(default_factory=list)
    """The responses to envelopes that were sent again."""
    slowest_s: float = 0.0
    kills: int = 0
    pauses: int = 0
    fallen: int = 0
    """Workers that exited because the database did not respond."""
    doubts: int = 0
    """Cases that were settled manually."""
    accepted: int = 0
    """Applications that the server counted as new."""
    repeats: int = 0
    """Notifications that it recognized as repeated, and their causes."""
    causes: dict[str, int] = field(default_factory=dict)
    decided: int = 0
    pulled: Pulled = field(default_factory=Pulled)
    told: Told = field(default_factory=Told)

    @property
    def notifications(self) -> int:
        """The number of notifications to send."""
        return self.plan.applications * self.plan.times

    def violations(self) -> list[str]:
        """The violated guarantees, in words; empty if there are none. Durations are not checked."""
        plan, pulled, told = self.plan, self.pulled, self.told
        deaths = self.kills + self.fallen
        wrong = {
            f"{self.notifications - self.acknowledged} notifications were not acknowledged": (
                self.acknowledged != self.notifications
            ),
            f"{self.accepted} of {plan.applications} applications were counted": (
                self.accepted != plan.applications
            ),
            f"{self.repeats} repeats, but causes {self.causes}": (
                # Repeats of abandoned envelopes are additional.
                self.repeats < self.notifications - plan.applications
                or self.repeats != sum(self.causes.values())
                or "unknown" in self.causes
            ),
            f"{plan.applications - self.decided} applications were not decided": (
                self.decided != plan.applications
            ),
            f"an application was pulled {pulled.most} times": pulled.most > 1,
            f"there were {pulled.done} pulls for {plan.applications} applications": (
                pulled.done != plan.applications
            ),
            f"{self.doubts} cases were in doubt, with keys": plan.keys and self.doubts,
            f"{self.doubts} cases were in doubt after {deaths} deaths": self.doubts > deaths,
            f"{told.results} results for {plan.applications} applications": (
                told.results != len(KINDS) * plan.applications
            ),
            f"{told.twice + told.different} results had two ids or changed": (
                told.twice or told.different
            ),
            f"only {self.kills} workers were killed and {self.pauses} paused": (
                self.kills < plan.kills or self.pauses < plan.pauses
            ),
        }
        return [words for words, is_wrong in wrong.items() if is_wrong]


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


class Storm:
    """One storm, on a database that several processes can share."""

    def __init__(
        self,
        plan: Plan,
        database: str,
        folder: Path,
        show: Callable[[Course], None] = lambda course: None,
    ) -> None:
        """`folder` is the working directory and log folder of processes; `show` is called with the
        progress."""
        self.plan = plan
        self.course = Course(plan)
        self._database = database
        self._folder = folder
        self._show = show
        self._clock = Clock()
        self._chance = Chance()
        self._secret = "storm" + "0" * 16
        self._crew: list[Child] = []
        self._spared: set[Child] = set()

    async def run(self) -> Course:
        """Run the storm and return its result. Raises `OncewardError` if a process fails
        unexpectedly, or at the timeout."""
        try:
            async with asyncio.timeout(self.plan.patience_s), AsyncExitStack() as stack:
                await self._run(stack)
        except TimeoutError:
            raise OncewardError(
                f"the storm did not end within {self.plan.patience_s:.0f} s: {self.course}",
                code="internal",
            ) from None
        except ExceptionGroup as group:
            for error in group.exceptions:
                if isinstance(error, OncewardError):
                    raise error from group
            raise
        return self.course

    async def _run(self, stack: AsyncExitStack) -> None:
        plan = self.plan
        told = ["--pull-s", str(plan.pull_s), "--failing", str(plan.failing)]
        told += ["--keys"] if plan.keys else []
        outside = await self._child(stack, "outside", "-m", "apps.credit.outside", *told)
        self._outside = await outside.line()
        serve = ("-m", "onceward", "serve", "--app", _DEPLOYED, "--port", "0")
        settings = self._settings("server", work="0")
        server = await self._child(stack, "server", *serve, **settings)
        found = re.search(r"at (http://\S+)", await server.line())
        assert found is not None
        self._server = found[1]
        self._session = await stack.enter_async_context(aiohttp.ClientSession())
        self._client = await stack.enter_async_context(Client(self._server))
        await self._insist_new()
        # If one task fails, the others are cancelled.
        async with asyncio.TaskGroup() as group:
            keeping = [
                group.create_task(self._keep(stack, f"worker{number}"))
                for number in range(self.plan.workers)
            ]
            # Starting processes would slow down the server's responses.
            while not self._at_work():
                await self._clock.sleep(_LOOK_S)
            troubling = group.create_task(self._trouble())
            sending = [group.create_task(self._send(stack, n)) for n in range(self.plan.senders)]
            await asyncio.gather(*sending)
            await self._count_repeats()
            await self._until(self._all_ended)
            await troubling
            await self._until(self._all_settled, for_s=self.plan.lease_s)
            if not self.plan.keys:
                # Each case in doubt is reported to Salesforce before an operator settles it.
                await self._until(self._all_doubts_told)
                await self._ask_office()
            await self._until(self._all_told)
            for task in keeping:
                task.cancel()

    async def _insist_new(self) -> None:
        """Raise `BadInput` for a database of an earlier storm, where nothing would be pulled."""
        path = ("credit", "applications", ORGANISATION, opportunity(0))
        with suppress(NoSuchJob):
            await self._client.call("GET", *path, type=dict)
            raise BadInput("--database has the applications of another storm; use another ?schema=")

    # Processes.

    async def _child(
        self, stack: AsyncExitStack, name: str, *arguments: str, **settings: str
    ) -> Child:
        child = Child(name, self._folder, *arguments, **settings)
        await child.start()
        stack.push_async_callback(child.end)
        return child

    def _settings(self, name: str, work: str = "1") -> dict[str, str]:
        plan = self.plan
        settings = {
            "DATABASE": self._database,
            "ORGANISATIONS": ORGANISATION,
            "SECRET": self._secret,
            "BUREAU": f"{self._outside}/bureau/pulls",
            "BUREAU_KEYS": str(int(plan.keys)),
            "SALESFORCE": f"{self._outside}/salesforce/results",
            "DECIDE": "apps.credit.decision:decide",
            "WORK": work,
            "NAME": name,
            "SLOTS": str(_SLOTS),
            "LEASE_S": str(plan.lease_s),
            "NODE_LEASE_S": str(plan.lease_s),
            "RETRY_FIRST_S": "0.2",
            "CONCURRENCY": str(plan.concurrency),
        }
        return {f"CREDIT_{name}": text for name, text in settings.items()}

    async def _keep(self, stack: AsyncExitStack, name: str) -> None:
        """Run a worker, and replace it whenever it is killed or exits."""
        work = ("-m", "onceward", "work", _DEPLOYED)
        for number in count(1):
            told = f"{name}.{number}"
            worker = await self._child(stack, told, *work, **self._settings(name))
            self._crew.append(worker)
            code = await worker.wait()
            self._crew.remove(worker)
            if code >= 0:
                self.course.fallen += 1
                if code != _TRY_AGAIN:
                    await worker.line()  # logs why it exited

    def _at_work(self) -> bool:
        """Whether all workers have started."""
        logs = [worker.log.read_text(errors="replace") for worker in self._crew]
        return len(logs) == self.plan.workers and all(_AT_WORK in log for log in logs)

    async def _trouble(self) -> None:
        """Kill and suspend workers, spread over the duration."""
        todo = ["kill"] * self.plan.kills + ["pause"] * self.plan.pauses
        pause_s = self.plan.last_s / (len(todo) + 1)
        async with asyncio.TaskGroup() as group:
            for what in sorted(todo, key=lambda _: self._chance()):
                await self._clock.sleep(pause_s)
                while (worker := self._victim()) is None:
                    await self._clock.sleep(_LOOK_S)
                if what == "kill":
                    worker.kill()
                    self.course.kills += 1
                else:
                    group.create_task(self._pause(worker))
                    self.course.pauses += 1

    def _victim(self) -> Child | None:
        chosen = [
            worker
            for worker in self._crew
            if worker.alive and worker not in self._spared and (self.plan.keys or not _owes(worker))
        ]
        return chosen[int(self._chance() * len(chosen))] if chosen else None

    async def _pause(self, worker: Child) -> None:
        """Suspend a worker until another one has claimed its job."""
        self._spared.add(worker)
        await worker.pause(2 * self.plan.lease_s, self._clock)
        await self._clock.sleep(self.plan.lease_s)
        self._spared.discard(worker)

    async def _send(self, stack: AsyncExitStack, number: int) -> None:
        told = {
            "url": f"{self._server}/credit/soap/{self._secret}",
            "organisation": ORGANISATION,
            "applications": self.plan.applications,
            "times": self.plan.times // self.plan.senders,
            "last_s": self.plan.last_s * _SENDING,
            "hang_up": _HANG_UP,
        }
        text = msgspec.json.encode(told).decode()
        name = f"sender{number}"
        sender = await self._child(stack, name, "-m", "apps.credit.sender", text)
        course = self.course
        async for line in sender.lines():
            answered = msgspec.json.decode(line, type=Answered)
            course.envelopes += 1
            course.slowest_s = max(course.slowest_s, answered.took_s)
            if answered.acknowledged:
                course.acknowledged += answered.notifications
            else:
                course.unacknowledged.append(answered.said)
            self._show(course)

    # Results.

    async def _count_repeats(self) -> None:
        """Read the server's counts of new and repeated messages, with causes."""
        found = await self._client.call("GET", "v1", "senders", type=dict, query={"queue": PULLS})
        for sender in found["senders"]:
            self.course.accepted += sender["accepted"]
            self.course.repeats += sender["repeats"]
            for cause, times in sender["causes"].items():
                self.course.causes[cause] = self.course.causes.get(cause, 0) + times

    async def _until(self, holds: Callable[[], Any], for_s: float = 0.0) -> None:
        """Poll until a condition holds, and keeps holding for `for_s`."""
        since_ns: int | None = None
        while True:
            self.course.pulled = await self._ask("/bureau", Pulled)
            self.course.told = await self._ask("/salesforce", Told)
            self.course.decided = self.course.told.applications
            if not await holds():
                since_ns = None
            elif since_ns is None:
                since_ns = self._clock.elapsed_ns()
            self._show(self.course)
            if since_ns is not None and self._clock.elapsed_ns() - since_ns >= for_s * 1e9:
                return
            await self._clock.sleep(_LOOK_S)

    async def _all_ended(self) -> bool:
        """Whether all applications are decided, or in doubt without a running pull."""
        ended = (await self._client.queues.failed(PULLS, limit=1_000)).jobs
        for job in ended:
            if job.state == "failed":
                raise OncewardError(f"job {job.id} failed: {job.reason}", code="internal")
        # A late response may just have settled one.
        self.course.doubts = sum(job.state == "in_doubt" for job in ended)
        over = self.course.decided + self.course.doubts == self.plan.applications
        return over and self.course.pulled.under_way == 0

    async def _all_settled(self) -> bool:
        """Whether all have ended and no worker has a late response to record."""
        owing = not self.plan.keys and any(_owes(worker) for worker in self._crew)
        return await self._all_ended() and not owing

    async def _all_doubts_told(self) -> bool:
        await self._all_ended()
        return self.course.told.statuses >= self.course.doubts

    async def _all_told(self) -> bool:
        return self.course.decided == self.plan.applications

    async def _ask_office(self) -> None:
        """Settle cases in doubt, like an operator who calls the bureau."""
        doubts = await self._client.queues.failed(PULLS, limit=1_000)
        for job in doubts.jobs:
            reference = job.body["opportunity"]
            pulls = await self._ask(f"/bureau/pulls/{reference}", list[Any])
            report = pulls[0] if pulls else None
            try:
                await self._client.jobs.settle(
                    job.id,
                    STEP,
                    done=report is not None,
                    result=report,
                    reason="asked the bureau's office",
                )
            except NotFailed:
                self.course.doubts -= 1  # a late response has just settled it

    async def _ask(self, path: str, type_: Any) -> Any:
        async with self._session.get(f"{self._outside}{path}") as answer:
            return msgspec.json.decode(await answer.read(), type=type_)


def _owes(worker: Child) -> bool:
    """Whether a worker waits for a late response and already has a new job. Killing it would count
    as two workers."""
    log = worker.log.read_text(errors="replace")
    return log.count(ANSWER_OWED) > log.count(LATE_ANSWER)
