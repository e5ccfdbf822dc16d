"""A node crashes at each of its commits in turn, and texts come five times: all is as without."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from apps.rps.game import Game
from onceward.app import App
from onceward.engine.base import Engine
from onceward.engine.memory import Memory, MemoryEngine
from onceward.ids import Ids
from onceward.json_values import decode
from onceward.keys import USER, shown_key
from onceward.store import Store
from onceward.testing import Fault, FaultEngine, VirtualClock, VirtualLoop, run_virtual
from tests.apps.rps.carrier import NUMBERS, Carrier
from tests.schedule.jobs import all_records, problems

TEXTS = [
    *("Ann: nick Ann", "Bob: n Bob"),
    *("Ann: throw rock Bob", "Bob: t s Ann"),
    *("Ann: p paper BOB", "Bob: quit"),
]
TIMES = 5
CRASHES = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_ANSWER)


class Silent(Carrier):
    """Cannot be asked."""

    asks = False


class Crashing:
    """One database, one provider, and a node that crashes once and is started again."""

    def __init__(self, carrier: Carrier, at: int, fault: Fault) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.clock = VirtualClock(loop)
        self.memory = Memory()
        self.carrier = carrier
        self.plan: dict[int, Any] = {at: fault} if at else {}
        self.commits = 0
        self.crashed = False
        self.game: Game | None = None

    async def start(self) -> None:
        """Start a node, the second time one that does not crash."""
        self.died = asyncio.Event()
        self.process = self.loop.process(f"node {self.crashed}")
        self.engine = FaultEngine(
            MemoryEngine(self.memory), {} if self.crashed else self.plan, crash=self._die
        )
        app = App(self.engine, name="node", slots=4, node_lease_s=1, store=self._store)
        self.game = Game(app, [self.carrier])
        await self._here(app.start())

    def _store(self, engine: Engine) -> Store:
        clock = VirtualClock()
        return Store(engine, clock, Ids(clock.now_ms, random.Random(self.crashed).randbytes))

    def _die(self) -> None:
        self.crashed = True
        self.process.kill()
        self.died.set()

    async def _here(self, work: Any) -> Any:
        """Do something on the node; None if it dies meanwhile, and then it is started again."""
        task = self.process.spawn(work)
        died = asyncio.create_task(self.died.wait())
        await asyncio.wait([task, died], return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        if task.done():
            return task.result()
        await self.start()
        return None

    async def deliver(self, number: int) -> str:
        """Deliver a text until it is accepted, as providers do; returns the state of its job."""
        name, _, text = TEXTS[number].partition(": ")
        while True:
            assert self.game is not None
            accept = self.game.accept("carrier", f"text-{number}", NUMBERS[name], text)
            receipt = await self._here(accept)
            if receipt is not None:
                return str(receipt.state)

    async def play(self, shuffle: random.Random) -> None:
        """Deliver all texts five times, in any order but for their first times."""
        delivered: Counter[int] = Counter()
        for number in range(len(TEXTS)):
            pause_s = 0.1
            while await self.deliver(number) != "succeeded":
                delivered[number] += 1
                again = shuffle.randrange(number + 1)
                await self.deliver(again)
                delivered[again] += 1
                await self.clock.sleep(pause_s)
                pause_s *= 2
        late = [n for n in range(len(TEXTS)) for _ in range(TIMES - delivered[n])]
        shuffle.shuffle(late)
        for number in late:
            await self.deliver(number)
        while any(job["stage"] not in ("succeeded", "in_doubt") for job in self.jobs.values()):
            await self.clock.sleep(1)

    @property
    def jobs(self) -> dict[str, Any]:
        return {
            key[1].removesuffix("#job"): decode(record.value, Any, key)
            for key, record in all_records(MemoryEngine(self.memory)).items()
            if key[0].startswith("job#") and key[1].endswith("#job")
        }

    def outcome(self) -> dict[str, Any]:
        """All that there is in the end, with nicknames in the place of ids."""
        found = {
            shown_key(key): decode(record.value, Any, key)
            for key, record in all_records(MemoryEngine(self.memory)).items()
            if key[0].startswith(f"{USER}rps-")
        }
        consents = {key: value["out"] for key, value in found.items() if key[0] == "rps-consent"}
        found |= consents  # without their times
        assert len(found) > len(consents) == 1
        # A player's id is that of the job that made it, also of one who has left.
        nicks = {
            id_: job["body"]["text"]
            for id_, job in self.jobs.items()
            if job["body"].get("text", "").startswith("n")
        }

        def plain(value: Any) -> str:
            text = str(value)
            for id_, nick in nicks.items():
                text = text.replace(id_, nick)
            return text

        heard: dict[str, list[str]] = {}
        for job in self.jobs.values():
            if job["queue"].startswith("rps-replies"):
                heard.setdefault(job["body"]["to"], []).append(job["body"]["text"])
        return {
            "records": {plain(key): plain(value) for key, value in found.items()},
            "heard": {phone: sorted(texts) for phone, texts in heard.items()},
        }


def play(carrier: Carrier, at: int = 0, fault: Fault = Fault.CRASH_BEFORE) -> Crashing:
    async def main() -> Crashing:
        world = Crashing(carrier, at, fault)
        await world.start()
        await world.play(random.Random(at))
        world.commits = world.engine.calls["commit"]
        assert problems(MemoryEngine(world.memory)) == []
        return world

    return run_virtual(main())


def sent_ids(carrier: Carrier) -> list[str]:
    return [id_ for id_, _ in carrier.sent]


def is_refused(job: dict[str, Any]) -> bool:
    """Whether it came too late: Bob had opted out."""
    refused = job["result"] is not None and job["result"].get("refused") == "opted_out"
    return refused and job["body"]["to"] == NUMBERS["Bob"]


def replies_of(world: Crashing) -> dict[str, Any]:
    return {id_: job for id_, job in world.jobs.items() if job["queue"].startswith("rps-replies")}


@pytest.mark.simulate
@pytest.mark.parametrize("fault", CRASHES)
def test_after_a_crash_at_any_commit_all_is_as_without(fault: Fault, soak: bool) -> None:
    calm = play(Carrier())
    wanted = calm.outcome()
    assert len(calm.carrier.sent) == len(replies_of(calm)) == 10
    # In a short run, each crash has every third commit; all of them have all.
    step = 1 if soak else len(CRASHES)
    for at in range(1 + CRASHES.index(fault) % step, calm.commits + 1, step):
        carrier = Carrier()
        world = play(carrier, at, fault)
        assert world.crashed, at
        assert world.outcome() == wanted, at
        replies = replies_of(world)
        wanted_ids = sorted(id_ for id_, job in replies.items() if not is_refused(job))
        assert sorted(sent_ids(carrier)) == wanted_ids, f"crash {at}: each once, by its id"
        assert {job["stage"] for job in replies.values()} == {"succeeded"}


@pytest.mark.simulate
def test_where_nobody_can_be_asked_only_what_a_crash_cut_off_is_in_doubt() -> None:
    wanted = play(Silent()).outcome()
    doubts = 0
    for at in range(20, 70, 4):
        carrier = Silent()
        world = play(carrier, at, Fault.CRASH_BEFORE)
        assert world.outcome() == wanted, at
        stages = Counter(job["stage"] for job in replies_of(world).values())
        assert stages["succeeded"] + stages["in_doubt"] == 10
        assert stages["in_doubt"] <= 2, "both replies of a text are sent at once"
        assert max(Counter(sent_ids(carrier)).values()) == 1, "never sent blindly again"
        doubts += stages["in_doubt"]
    assert doubts, "some crash was between the sending and its record"
