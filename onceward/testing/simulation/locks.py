"""The scenario for locks: holders, waiters and crashes, checked by fencing tokens."""

import asyncio
import random
from collections import Counter
from functools import partial
from typing import Any, ClassVar, Final

from onceward import keys
from onceward.errors import Unavailable
from onceward.ids import Ids
from onceward.locks import GRANT_ROOM, LockTable
from onceward.locks.register import PART
from onceward.locks.server import Locks
from onceward.store.transaction import Transaction
from onceward.testing.locks import (
    EFFECTS,
    LockEvent,
    LockUser,
    collect_uses,
    judge_effects,
    judge_locks,
)
from onceward.testing.simulation.history import History, violated
from onceward.testing.simulation.network import Message
from onceward.testing.simulation.scenario import Scenario
from onceward.testing.simulation.serving import start_service
from onceward.testing.simulation.world import Node

_LEASES_MS: Final = (1_000, 3_000, 10_000)
_WORK_S: Final = (0.0, 0.0, 0.05, 1.0, 5.0)
_WAITS_S: Final = (None, None, None, 0.0, 0.3, 4.0)


class LockUses(Scenario):
    """Clients request uses of locks: hold them, make guarded writes, release them."""

    clients = (2, 5)
    operations = (12, 30)
    without = frozenset({"function run again"})  # counted for `node.run` alone
    table: ClassVar[type[LockTable]] = LockTable
    service: ClassVar[type[Locks]] = Locks

    def setup(self, random: random.Random) -> None:
        self.slots = random.choice((1, 2))
        self.lease_ms = random.choice(_LEASES_MS)
        # Short times remove unused names frequently.
        self.unused_ms = random.choice((300, 3_000, 3_600_000))
        # With little room, waiters are often granted by separate commits.
        self.room = random.choice((0, 8, GRANT_ROOM))
        self.capacities = {
            name: random.choice((1, 1, 1, 2, 3)) for name in "abcd"[: random.randint(1, 4)]
        }
        self._users: dict[str, LockUser] = {}
        self._serving: dict[tuple[str, str], None] = {}

    async def start(self, node: Node) -> None:
        node.spawn(self._serve(node))

    async def _serve(self, node: Node) -> None:
        service = await start_service(node, self.slots)
        table = self.make_table(node.ids)
        locks = self.service(node.store, table)
        service.dispatcher.act_on(PART.due, table)
        note = partial(self._note, node)
        self._users[node.name] = LockUser(locks, note)
        await service.wait()

    def make_table(self, ids: Ids) -> LockTable:
        table = self.table(ids, self.slots, unused_ms=self.unused_ms)
        release = table.release

        async def narrow(tx: Transaction, id_: str, *, room: int = GRANT_ROOM) -> None:
            await release(tx, id_, room=min(room, self.room))

        table.release = narrow  # type: ignore[method-assign]
        return table

    def _note(self, node: Node, what: str, use: str, facts: dict[str, Any]) -> None:
        node.tell("lock", [what, use, facts])

    def request(self, random: random.Random) -> Any:
        count = min(random.choice((1, 1, 2, 3)), len(self.capacities))
        names = random.sample(list(self.capacities), count)
        work = [random.choice(_WORK_S) for _ in range(random.choice((0, 1, 1, 2)))]
        return names, random.choice(_WAITS_S), work

    async def handle(self, node: Node, message: Message) -> Any:
        user = self._users.get(node.name)
        if user is None:
            raise Unavailable("the node is just starting")
        serving = (node.name, message.id)
        if serving in self._serving:
            raise Unavailable("this message is being served already")
        names, wait_s, work = message.request
        self._serving[serving] = None
        try:
            return await user.use(
                node.token(message),
                {name: self.capacities[name] for name in names},
                lease_ms=self.lease_ms,
                wait_s=wait_s,
                work=[partial(asyncio.sleep, work_s) for work_s in work],
            )
        finally:
            del self._serving[serving]

    def judge(self, history: History) -> None:
        slack_ns = (2 * history.clock_error_ms + 1) * 1_000_000
        steps = [
            LockEvent(note.at_ns, *note.body) for note in history.notes if note.topic == "lock"
        ]
        uses = collect_uses(steps, slack_ns=slack_ns)
        judge_locks(uses, slack_ns=slack_ns)
        judge_effects(uses, history.values(EFFECTS))
        judge_records(history)


def judge_records(history: History) -> None:
    """The final records are consistent, and no grantable request is waiting."""
    heads: dict[str, Any] = {}
    counts: Counter[tuple[str, str]] = Counter()
    fronts: dict[str, str] = {}
    requests: dict[str, Any] = {}
    settling: list[str] = []
    for (partition, sort), stored in history.final.items():
        kind = keys.split(partition)[0]
        words = keys.split(sort)
        if kind == "lock" and words[1] == "head":
            heads[words[0]] = stored.value
        elif kind == "lock":
            counts[words[0], words[1]] += 1
            if words[1] == "wait":
                fronts.setdefault(words[0], stored.value["id"])
        elif kind == "ask" and sort == "request":
            requests[stored.value["id"]] = stored.value
        elif kind == "due" and words[-1] == "lock-grant":
            settling += stored.value
    for name, head in heads.items():
        if (head["held"], head["waiting"]) != (counts[name, "hold"], counts[name, "wait"]):
            violated("miscounted", f"{name} is {head}, but has {counts}")
    for name, _ in counts:
        if name not in heads:
            violated("miscounted", f"{name} has no head, but has {counts}")
    for request in requests.values():
        names = list(request["places"])
        if (
            not set(names) & set(settling)
            and names
            and all(
                fronts[name] == request["id"] and heads[name]["held"] < heads[name]["capacity"]
                for name in names
            )
        ):
            violated("stuck", f"{request} could be granted, but is not")
