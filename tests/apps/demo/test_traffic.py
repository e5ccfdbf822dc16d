"""What was acknowledged and has not arrived is asked for: it is under way, or it is lost."""

import asyncio
from types import SimpleNamespace
from typing import Any

from apps.demo.switch import Switch
from apps.demo.traffic import Traffic
from onceward.client import Job
from onceward.clock import Clock
from onceward.errors import NoSuchJob, NoSuchTimer, Unavailable
from onceward.ids import Ids


class Rounds(Clock):
    """Lets the first sleep pass, and tells of the second one, which does not."""

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()
        self._slept = 0

    async def sleep(self, seconds: float) -> None:
        self._slept += 1
        if self._slept > 1:
            self.over.set()
            await asyncio.Event().wait()


class Server:
    """Knows jobs and timers, as states by id; an order that is done has a parcel."""

    def __init__(self, known: dict[str, str]) -> None:
        self.clock = Rounds()
        self.ids = Ids(self.clock.now_ms)
        self._known = known
        self.jobs = SimpleNamespace(get=self._job)
        self.timers = SimpleNamespace(get=self._timer)

    async def _job(self, id_: str) -> Job:
        state = self._state(id_, NoSuchJob)
        return Job(
            id=id_,
            queue="",
            state=state,
            body=None,
            created_ms=0,
            due_ms=0,
            attempt=1,
            attempts_max=1,
            priority=0,
            result={"parcel": f"{id_} parcel"},
        )

    async def _timer(self, id_: str) -> Any:
        return SimpleNamespace(state=self._state(id_, NoSuchTimer))

    def _state(self, id_: str, none: type[Exception]) -> str:
        if id_ not in self._known:
            raise none(id_)
        if self._known[id_] == "away":
            raise Unavailable("not now")
        return self._known[id_]


async def ask_once(traffic: Traffic, server: Server) -> None:
    following = asyncio.create_task(traffic._follow())
    over = asyncio.create_task(server.clock.over.wait())
    await asyncio.wait([following, over], return_when=asyncio.FIRST_COMPLETED)
    if following.done():
        following.result()  # it has raised
    following.cancel()
    await asyncio.wait([following])


async def test_what_the_server_does_not_know_or_has_given_up_is_lost() -> None:
    lost = {
        "forgotten": {},
        "given up": {"given up": "failed"},
        "without a parcel": {"without a parcel": "succeeded"},
        "its parcel given up": {
            "its parcel given up": "succeeded",
            "its parcel given up parcel": "failed",
        },
        "said to be brought": {
            "said to be brought": "succeeded",
            "said to be brought parcel": "succeeded",
        },
    }
    under_way = {
        "queued": {"queued": "queued"},
        "with a worker": {"with a worker": "succeeded", "with a worker parcel": "running"},
        "not answered for": {"not answered for": "away"},
    }
    known = {
        id_: state
        for some in (lost, under_way)
        for one in some.values()
        for id_, state in one.items()
    }
    server = Server(known)
    traffic = Traffic(server, "", Switch(False))  # type: ignore[arg-type]
    for key in (*lost, *under_way):
        traffic.orders.acknowledge(key, key, 0)
    traffic.orders.acknowledge("new", "unknown yet", traffic._clock.now_ms())
    await ask_once(traffic, server)
    counts = traffic.orders.counts()
    assert (counts.lost, counts.under_way) == (len(lost), len(under_way) + 1)


async def test_a_timer_that_is_over_and_has_not_arrived_is_lost() -> None:
    states = ("active", "firing", "away", "success", "failed", "cancelled")
    server = Server({state: state for state in states})
    traffic = Traffic(server, "", Switch(False))  # type: ignore[arg-type]
    for id_ in (*states, "forgotten"):
        traffic.timers.acknowledge(id_, id_, 0)
    await ask_once(traffic, server)
    counts = traffic.timers.counts()
    assert (counts.lost, counts.under_way) == (4, 3)


async def test_a_timer_arrives_once_and_is_late_once() -> None:
    traffic = Traffic(Server({}), "", Switch(False))  # type: ignore[arg-type]
    for id_ in ("firing-1", "firing-1", "firing-2"):
        traffic.arrive("timer", id_, traffic._clock.now_ms() - 40)
    counts = traffic.timers.counts()
    assert (counts.repeated, counts.doubled) == (1, 1)
    assert len(traffic.late_ms) == 2
    assert min(traffic.late_ms) >= 40
