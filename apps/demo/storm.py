"""The storm of the page: duplicate credit applications, pulls longer than leases, and killed
workers.

At the end it checks that each application was pulled once. `apps.credit.storm` is the larger
version, for a shared database.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import aiohttp
import msgspec

from apps.credit.bureau import Bureau
from apps.credit.credit import KINDS
from apps.credit.outbound import write
from apps.credit.salesforce import Salesforce
from apps.credit.sender import opportunity
from apps.credit.storm import ORGANISATION
from onceward import Clock

_ACK = b"<Ack>true</Ack>"
_ANSWER_S = 10.0
_LOOK_S = 0.25
_ENVELOPE = 20


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The parameters of the storm."""

    applications: int = 60
    times: int = 10
    """How many times each application is sent."""
    senders: int = 3
    kill_s: float = 1.5
    """The time between two kills."""
    patience_s: float = 120.0

    @property
    def kills(self) -> int:
        """The number of killed workers: one for each ten applications."""
        return -(-self.applications // 10)


class View(msgspec.Struct, kw_only=True):
    """The progress."""

    state: Literal["calm", "blowing", "over"] = "calm"
    applications: int = 0
    notifications: int = 0
    """Notifications to send."""
    acknowledged: int = 0
    """Acknowledged notifications."""
    stopped: int = 0
    """Notifications of known applications."""
    asked: int = 0
    """Requests to the bureau."""
    known: int = 0
    """Requests that the bureau deduplicated."""
    pulls: int = 0
    most: int = 0
    """The highest number of pulls for one application."""
    decided: int = 0
    """Applications with all results."""
    kills: int = 0
    took_s: float = 0.0
    wrong: list[str] = []
    """Violated guarantees, at the end."""


class Storm:
    """Runs one storm after the other."""

    def __init__(
        self,
        plan: Plan,
        url: str,
        bureau: Bureau,
        salesforce: Salesforce,
        kill: Callable[[], bool],
        clock: Clock,
        chance: Callable[[], float],
    ) -> None:
        """`url` receives applications; `kill` kills a worker if one is running."""
        self.plan = plan
        notifications = plan.applications * plan.times
        self.view = View(applications=plan.applications, notifications=notifications)
        self._url = url
        self._bureau = bureau
        self._salesforce = salesforce
        self._kill = kill
        self._clock = clock
        self._chance = chance
        self._ids: set[str] = set()
        self._acknowledged: set[str] = set()
        self._asked_before = self._known_before = 0

    async def run(self) -> View:
        """Run until all applications are decided, or the timeout; returns the result."""
        plan, began_ns = self.plan, self._clock.elapsed_ns()
        first = self._clock.now_ms() // 1_000 % 10**8 * 1_000  # new applications for each storm
        ids = {number: opportunity(first + number) for number in range(plan.applications)}
        self._ids, self._acknowledged = set(ids.values()), set()
        stats = self._bureau.stats
        self._asked_before, self._known_before = stats.asked, stats.repeated
        self.view = View(
            state="blowing",
            applications=plan.applications,
            notifications=plan.applications * plan.times,
        )
        try:
            async with asyncio.timeout(plan.patience_s), asyncio.TaskGroup() as group:
                killing = group.create_task(self._kill_some())
                async with aiohttp.ClientSession() as session:
                    pile = list(ids.values()) * plan.times
                    pile.sort(key=lambda _: self._chance())
                    size = -(-len(pile) // plan.senders)
                    sending = [
                        group.create_task(self._send(session, pile[at : at + size]))
                        for at in range(0, len(pile), size)
                    ]
                    while self.view.decided < plan.applications or not all(
                        task.done() for task in (*sending, killing)
                    ):
                        await self._clock.sleep(_LOOK_S)
                        self._look(began_ns)
        except TimeoutError:
            pass  # missing results are reported below
        self._look(began_ns)
        self.view.wrong = self._violations()
        self.view.state = "over"
        return self.view

    async def _kill_some(self) -> None:
        while self.view.kills < self.plan.kills:
            await self._clock.sleep(self.plan.kill_s)
            self.view.kills += self._kill()

    async def _send(self, session: aiohttp.ClientSession, pile: list[str]) -> None:
        """Send a list of applications in envelopes, each until it is acknowledged."""
        for at in range(0, len(pile), _ENVELOPE):
            some = pile[at : at + _ENVELOPE]
            envelope = write(ORGANISATION, [_notification(id_) for id_ in some])
            while not await self._acknowledges(session, envelope):
                await self._clock.sleep(_LOOK_S)
            self.view.acknowledged += len(some)
            self._acknowledged.update(some)
            await self._clock.sleep(_LOOK_S * self._chance())

    async def _acknowledges(self, session: aiohttp.ClientSession, envelope: bytes) -> bool:
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        headers = {"Content-Type": "text/xml; charset=utf-8", "SOAPAction": '""'}
        try:
            async with session.post(
                self._url, data=envelope, headers=headers, timeout=timeout
            ) as answer:
                return answer.status == 200 and _ACK in await answer.read()
        except (aiohttp.ClientError, TimeoutError):
            return False

    def _look(self, began_ns: int) -> None:
        """Update the counts of external effects."""
        view, stats = self.view, self._bureau.stats
        pulls = [len(self._bureau.pulls.get(id_, ())) for id_ in self._ids]
        view.pulls, view.most = sum(pulls), max(pulls)
        view.asked = stats.asked - self._asked_before
        view.known = stats.repeated - self._known_before
        view.stopped = view.acknowledged - len(self._acknowledged)
        told: dict[str, set[str]] = {id_: set() for id_ in self._ids}
        for result in self._salesforce.results.values():
            if result.opportunity in told:
                told[result.opportunity].add(result.kind)
        view.decided = sum(kinds == set(KINDS) for kinds in told.values())
        view.took_s = (self._clock.elapsed_ns() - began_ns) / 1e9

    def _violations(self) -> list[str]:
        view, stats = self.view, self._salesforce.stats
        count = self.plan.applications
        wrong = {
            f"{view.notifications - view.acknowledged} notifications were not acknowledged": (
                view.acknowledged != view.notifications
            ),
            f"{count - view.decided} applications were not decided": view.decided != count,
            f"there were {view.pulls} pulls for {count} applications": view.pulls != count,
            f"an application was pulled {view.most} times": view.most > 1,
            f"{stats.twice + stats.different} results had two ids or changed": (
                stats.twice + stats.different > 0
            ),
        }
        return [words for words, is_wrong in wrong.items() if is_wrong]


def _notification(id_: str) -> tuple[str, dict[str, str | None]]:
    fields: dict[str, str | None] = {"Id": id_, "Name": f"Applicant {id_[-7:]}", "Amount": "1000.0"}
    return f"04l{id_[3:15]}", fields
