"""Credit intake in worlds where nodes crash at any commit, stand still and start again, messages
come again, and answers are lost."""

from collections import Counter
from typing import Any, ClassVar

import msgspec
import pytest

from apps.credit.bureau import make_report
from apps.credit.credit import KINDS, NOTICES, PULLS, RESULTS, STATUS, Credit
from apps.credit.soap import Envelope, Notification
from onceward.errors import Unavailable
from onceward.testing.simulation import SimulationFailed, simulate, simulate_many, violated
from onceward.testing.simulation.handlers import Handlers, Outcome
from tests.apps.credit.envelopes import ORGANISATION, opportunity
from tests.apps.credit.office import SETTINGS

APPLICATIONS = 6
SEEDS = 4


class Bureau:
    """What is outside, as one node reaches it."""

    def __init__(self, outside: Any, keys: bool) -> None:
        self._outside = outside
        self._keys = keys

    async def pull(
        self, url: str, reference: str, fields: Any, *, key: str | None, **_: Any
    ) -> Any:
        if self._keys:
            number = await self._outside.call_once("pull", f"{reference}/{key}")
        else:
            number = await self._outside.call("pull", reference)
        return msgspec.to_builtins(make_report(reference, number))

    async def deliver(self, url: str, id_: str, result: Any, **_: Any) -> str:
        told: str = await self._outside.call("tell", id_, result)
        return told


class Unheard(Bureau):
    """Its answers are lost."""

    async def pull(
        self, url: str, reference: str, fields: Any, *, key: str | None, **_: Any
    ) -> Any:
        await super().pull(url, reference, fields, key=key)
        raise TimeoutError("no answer")


class Storm(Handlers):
    """Clients send the same applications again and again."""

    keys: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self._credits: dict[str, Credit] = {}

    def make(self, app: Any, outside: Any) -> Credit:
        settings = msgspec.structs.replace(SETTINGS, bureau_keys=self.keys, retry_first_s=0.1)
        return Credit(settings, app, Bureau(outside, self.keys))

    def declare(self, app: Any, outside: Any) -> None:
        self._credits[app.name] = self.make(app, outside)

    def message(self, random: Any) -> tuple[str, Any]:
        return PULLS, random.randrange(APPLICATIONS)

    async def handle(self, node: Any, message: Any) -> Any:
        what, *rest = message.request
        if what != "accept":
            return await super().handle(node, message)
        if node.name not in self._apps:
            raise Unavailable("the application has not started yet", code="node_stopped")
        number = rest[1]
        credit, id_ = self._credits[node.name], opportunity(number)
        came = Notification(f"n{number}", {"Id": id_, "Name": "Ann"})
        [repeat] = await credit.accept(Envelope(ORGANISATION, "a", [came]))
        [pull] = (await credit.find(ORGANISATION, id_)).pulls
        return {"id": pull.job, "duplicate": repeat != "first"}

    def judge_outcome(self, outcome: Outcome) -> None:
        pulled = Counter(
            effect.id.partition("/")[0] for effect in outcome.effects if effect.what == "pull"
        )
        for reference, times in pulled.items():
            if times > 1:
                violated("pulled twice", f"{reference} {times} times")
        told: dict[tuple[str, str], set[str]] = {}
        for effect in outcome.effects:
            if effect.what == "tell":
                result = effect.value["pull"], effect.value["kind"]
                told.setdefault(result, set()).add(effect.id)
        for result, ids in told.items():
            if len(ids) > 1 and result[1] != STATUS:
                violated("told under two ids", f"{result}: {ids}")
        for id_, job in outcome.jobs.items():
            self._judge_job(id_, job, pulled, told)

    def _judge_job(self, id_: str, job: Any, pulled: Any, told: Any) -> None:
        if job["queue"] in (RESULTS, NOTICES):
            if job["state"] != "succeeded":
                violated("not told", f"{id_} is {job['state']}")
            return
        if job["state"] == "in_doubt" and not self.keys:
            if (id_, STATUS) not in told:
                violated("doubt not told", id_)
            if pulled[job["body"]["opportunity"]]:
                self._judge_doubt(id_, job)
            return
        if job["state"] != "succeeded":
            violated("not decided", f"{id_} is {job['state']}: {job.get('reason')}")
        if not pulled[job["body"]["opportunity"]]:
            violated("not pulled", id_)
        for kind in KINDS:
            if (id_, kind) not in told:
                violated("not told", f"{kind} of {id_}")

    def _judge_doubt(self, id_: str, job: Any) -> None:
        """Of a pull that was made only a crash leaves a doubt: whoever stood still hears the
        answer later."""
        lives: dict[str, list[int]] = {}
        for name in self._credits:
            server, _, number = name.rpartition(".")
            lives.setdefault(server, []).append(int(number))
        for _, _, worker, *_ in job["history"]:
            server, _, number = worker.partition("/")[0].rpartition(".")
            if int(number) < max(lives[server]):
                return
        violated("in doubt without a crash", f"{id_}: {job['history']}")


class WithoutKeys(Storm):
    keys = False


class Deaf(WithoutKeys):
    """Wrong: without any crash, no answer is heard."""

    def make(self, app: Any, outside: Any) -> Credit:
        settings = msgspec.structs.replace(SETTINGS, retry_first_s=0.1)
        return Credit(settings, app, Unheard(outside, keys=False))


class Careless(WithoutKeys):
    """Wrong: the bureau takes no keys, and the worker believes that it does."""

    def make(self, app: Any, outside: Any) -> Credit:
        settings = msgspec.structs.replace(SETTINGS, bureau_keys=True, retry_first_s=0.1)
        return Credit(settings, app, Bureau(outside, keys=False))


@pytest.mark.simulate
@pytest.mark.timeout(2_700)
@pytest.mark.parametrize("scenario", [Storm, WithoutKeys])
def test_nothing_is_pulled_twice_in_any_world(scenario: type[Storm], soak: bool) -> None:
    if soak:
        simulate_many(scenario, range(1_000))
        return
    for seed in range(SEEDS):
        simulate(scenario, seed)


@pytest.mark.simulate
def test_a_worker_that_is_careless_is_found_out() -> None:
    with pytest.raises(SimulationFailed, match="pulled twice"):
        simulate_many(Careless, range(100))


@pytest.mark.simulate
def test_a_doubt_that_no_crash_explains_is_found_out() -> None:
    with pytest.raises(SimulationFailed, match="in doubt without a crash"):
        simulate_many(Deaf, range(100))
