"""The scenario for tables: players join, leave and play, checked after every commit.

The checker follows the records of the table through every commit of the run, and shares no code
with the code under test. Seats are in the head record, and each waiting user has a separate record.
A place was reported in the same commit, so its position must be the true one there.
"""

import random
from typing import Any, ClassVar, Final

import msgspec

from onceward import keys
from onceward.engine.base import Delete, Put
from onceward.errors import BadInput, Unavailable
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.tables import Seats, policy_of, waiter_key
from onceward.tables.register import PART
from onceward.tables.server import Tables
from onceward.testing.simulation.history import Applied, History, violated
from onceward.testing.simulation.network import Message
from onceward.testing.simulation.scenario import Scenario
from onceward.testing.simulation.serving import DID, done_once, judge_answers, start_service
from onceward.testing.simulation.world import Node

TABLE: Final = "t"


class Seatings(Scenario):
    """Clients make users join, leave, win and look up their places, at one table."""

    clients = (2, 5)
    operations = (15, 40)
    without = frozenset({"function run again"})  # the service runs most functions
    seats_type: ClassVar[type[Seats]] = Seats

    def setup(self, random: random.Random) -> None:
        self.slots = random.choice((1, 2))
        self.users = [f"u{number}" for number in range(random.choice((4, 12, 30)))]
        self.policy = {
            "seats": random.choice((["X", "O"], ["A", "B", "C"])),
            "lanes": random.choice((["main"], ["vip", "main"])),
            "max_wins": random.choice((0, 1, 3)),
            "rated": True,
            "tiers": random.choice(([], [], [1_190, 1_210])),
            "widen_ms": random.choice((2_000, 60_000)),
            "draw": random.choice(("swap", "back")),
            "idle_ms": random.choice((0, 0, 3_000)),
            "idle": random.choice(("back", "leave")),
            "break_ms": random.choice((0, 0, 2_000)),
            "waiting_ms": random.choice((0, 0, 10_000)),
            "grace_ms": 0,
        }
        self._tables: dict[str, Tables] = {}

    async def prepare(self, store: Store) -> None:
        seats = self.seats_type(store.ids, self.slots)
        await store.run(lambda tx: seats.create(tx, TABLE, policy=policy_of(self.policy)))

    async def start(self, node: Node) -> None:
        node.spawn(self._serve(node))

    async def _serve(self, node: Node) -> None:
        service = await start_service(node, self.slots)
        part = self.seats_type(node.ids, self.slots)
        self._tables[node.name] = Tables(node.store, part)
        service.dispatcher.act_on(PART.due, part)
        await service.wait()

    def request(self, random: random.Random) -> Any:
        whats = ("join", "leave", "result", "place", "waitlist")
        what = random.choices(whats, (6, 2, 3, 2, 1))[0]
        lane = random.choice(self.policy["lanes"])  # type: ignore[arg-type]
        return what, random.choice(self.users), lane, random.randrange(4)

    async def handle(self, node: Node, message: Message) -> Any:
        tables = self._tables.get(node.name)
        if tables is None:
            raise Unavailable("the node is just starting")

        async def fn(tx: Transaction) -> Any:
            return await done_once(tx, message.id, lambda: self._do(tx, tables.part, message))

        return await node.store.run(fn, line=TABLE)

    async def _do(self, tx: Transaction, seats: Seats, message: Message) -> Any:
        what, user, lane, pick = message.request
        if what == "waitlist":
            return {"waitlist": await self._waitlist(tx, seats)}
        if what == "join":
            await seats.join(tx, TABLE, user, lane=lane)
        elif what == "leave":
            await seats.leave(tx, TABLE, user)
        elif what == "result":
            table = await seats.get(tx, TABLE)
            players = sorted(table.players.values())
            try:
                winners = players[pick : pick + 1]
                await seats.result(tx, TABLE, winners, game=table.number)
            except BadInput as error:
                return {"refused": error.code}
        place = msgspec.to_builtins(await seats.place(tx, TABLE, user))
        return {**place, "ended": True} if what == "result" else place

    async def _waitlist(self, tx: Transaction, seats: Seats) -> list[Any]:
        """All pages of the waitlist."""
        found = await seats.waitlist(tx, TABLE, limit=2)
        pages = list(found)
        while len(found) == 2:
            found = await seats.waitlist(tx, TABLE, after=waiter_key(found[-1]), limit=2)
            pages += found
        return [[one.lane, one.number, one.position, list(one.users)] for one in pages]

    def judge(self, history: History) -> None:
        seats, break_ms = len(self.policy["seats"]), self.policy["break_ms"]  # type: ignore[arg-type]
        follow = Follow(seats, bool(self.policy["tiers"]), break_ms)  # type: ignore[arg-type]
        for commit in history.commits:
            follow.apply(commit)
        judge_answers(history, follow.did)
        history.seen.update({"seated from the line": follow.seatings})


class Follow:
    """A table as defined by its records, commit by commit."""

    def __init__(self, seats: int, tiers: bool, break_ms: int) -> None:
        self.seats = seats
        self.break_ms = break_ms
        self.tiers = tiers
        """Whether some users may not play together: then a seat may be empty though others wait."""
        self.did: dict[str, Any] = {}
        self.seatings = 0
        self._head: dict[str, Any] = {}
        self._waiting: dict[str, dict[int, tuple[str, ...]]] = {}
        self._roles: dict[str, str] = {}

    def apply(self, commit: Applied) -> None:
        before = {lane: dict(waits) for lane, waits in self._waiting.items()}
        seated = self._seated()
        did: list[tuple[str, Any]] = []
        touched = False
        for write in commit.writes:
            if not isinstance(write, Put | Delete):
                continue
            kind, sort = keys.split(write.key[0])[0], keys.split(write.key[1])
            value = msgspec.json.decode(write.value) if isinstance(write, Put) else None
            if kind == "table" and sort[0] == "head":
                self._judge_break(self._head, value or {})
                self._head, touched = value or {}, True
            elif kind == "lane" and sort[1] == "wait":
                self._wait(sort[0], int(sort[2]), value)
                touched = True
            elif kind == "stand":
                self._roles[sort[0]] = "" if value is None else value["role"]
                touched = True
            elif kind == DID:
                did.append((sort[0], value))
        if touched:
            self._judge_all(before, seated)
        for id_, value in did:
            if id_ in self.did:
                violated("twice", f"{id_} was done again")
            self.did[id_] = value
            self._judge_place(value)
        if len(did) == 1 and "ended" in did[0][1]:
            self._judge_end(seated)

    def _wait(self, lane: str, number: int, value: Any) -> None:
        waits = self._waiting.setdefault(lane, {})
        if value is None:
            waits.pop(number, None)
        else:
            waits[number] = tuple(value["users"])

    def _seated(self) -> dict[str, str]:
        return {seat["user"]: marker for marker, seat in self._head.get("seats", {}).items()}

    def _judge_all(
        self, before: dict[str, dict[int, tuple[str, ...]]], seated: dict[str, str]
    ) -> None:
        markers = self._head.get("seats", {})
        now = self._seated()
        if len(markers) > self.seats:
            violated("too many seated", f"{markers}")
        if len(now) < len(markers):
            violated("seated twice", f"{markers}")
        waiting = [user for waits in self._waiting.values() for w in waits.values() for user in w]
        if len(set(waiting)) < len(waiting) or set(waiting) & now.keys():
            violated("there twice", f"{sorted(now)} sit, {sorted(waiting)} wait")
        roles = {user: role for user, role in self._roles.items() if role}
        expected = {**dict.fromkeys(now, "seated"), **dict.fromkeys(waiting, "waiting")}
        if roles != expected:
            violated("lost", f"{roles} are known, {expected} are there")
        if self._head.get("phase") == "playing" and len(markers) < self.seats:
            violated("a game without players", f"{markers}")
        if waiting and len(markers) < self.seats and not self.tiers:
            violated("a seat is kept empty", f"{markers}, {sorted(waiting)} wait")
        for lane, waits in before.items():
            came = [number for number, users in waits.items() if set(users) & now.keys()]
            left = self._waiting.get(lane, {})
            for number in came:
                self.seatings += 1
                overtaken = [other for other in waits if other < number and other in left]
                if overtaken:
                    violated("overtaken", f"{number} of {lane} sits, {overtaken} wait")

    def _judge_break(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """A game must start a full break after the end of the previous one."""
        began_ms, ended_ms = after.get("began_ms", 0), before.get("ended_ms", 0)
        begins = before.get("game", 0) != after.get("game", 0)
        if self.break_ms and begins and ended_ms and began_ms - ended_ms < self.break_ms:
            violated("no break", f"a game ended at {ended_ms}, the next one began at {began_ms}")

    def _judge_end(self, seated: dict[str, str]) -> None:
        """After a result, a user may leave a seat only if another one takes it."""
        now = self._seated()
        up = seated.keys() - now.keys()
        if up and len(now) < self.seats:
            violated("got up for nobody", f"{sorted(up)} got up, {now} sit")

    def _judge_waitlist(self, told: list[Any]) -> None:
        lanes = list(dict.fromkeys(lane for lane, *_ in told))
        expected = [
            [lane, number, position, list(users)]
            for lane in lanes
            for position, (number, users) in enumerate(sorted(self._waiting[lane].items()), 1)
        ]
        waiting = {lane for lane, waits in self._waiting.items() if waits}
        vips_last = [lane.startswith("vip") for lane in lanes] != sorted(
            (lane.startswith("vip") for lane in lanes), reverse=True
        )
        if told != expected or set(lanes) != waiting or vips_last:
            violated("wrong waitlist", f"{told}, but {self._waiting} wait")

    def _judge_place(self, place: Any) -> None:
        if "refused" in place:
            return
        if "waitlist" in place:
            self._judge_waitlist(place["waitlist"])
            return
        user, seated = place["user"], self._seated()
        if place["role"] == "seated" and seated.get(user) != place["marker"]:
            violated("wrong place", f"{place}, and {seated} sit")
        if place["role"] == "waiting":
            waits = self._waiting[place["lane"]]
            order = [users for _, users in sorted(waits.items())]
            if order.index((user,)) + 1 != place["position"]:
                violated("wrong position", f"{place}, and {order} wait")
            if place["waiting"] != sum(len(waits) for waits in self._waiting.values()):
                violated("wrong count", f"{place}, and {self._waiting} wait")
