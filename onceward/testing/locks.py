"""Test tools for locks: uses that record events, and a checker of the record.

`LockUser.use` holds locks for a while and makes guarded writes, on any node, and records each step
with its time. `judge_locks` takes the records of all clients, and raises a `Violation` if they are
inconsistent. It uses only tokens and times: the order of a lock's tokens shows the order of its
holders.

Violations:

- "all or none": a grant without all tokens;
- "token twice": two grants with the same token;
- "token went back": a token smaller than one that was known before the request;
- "out of order": a request overtook a waiter;
- "two holders": more holders than the capacity at one moment;
- "lost": the lock was lost before its lease ended;
- "stale write": a write by a token older than one that had written;
- "cycle": the orders of several locks contradict each other, or the time.

All times must come from one clock, such as that of one machine. Records of clients that were killed
or paused may be incomplete; missing steps are not violations.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from onceward.engine.base import Put
from onceward.errors import LockHeld, LockLost
from onceward.locks.held import Lock
from onceward.locks.server import Locks
from onceward.store.store import Commit
from onceward.store.transaction import Transaction
from onceward.testing.simulation.history import NEVER_NS, violated

EFFECTS: Final = "effect"
"""The partition that counts guarded writes, by the name of the lock."""


class Effect(msgspec.Struct):
    """The guarded writes under one name."""

    number: int = 0
    token: int = 0
    """The newest token that has written."""
    stale: int = 0
    """The number of writes by an older token."""


class LockEvent(NamedTuple):
    """An action of a client, or a response that it received."""

    at_ns: int
    what: str
    use: str
    facts: dict[str, Any]


@dataclass(slots=True)
class Use:
    """One use of locks, as recorded by its client."""

    name: str
    capacities: dict[str, int]
    asked_ns: int
    joined_ns: int = NEVER_NS
    """When it was known to hold the locks or to wait for them."""
    granted_ns: int = NEVER_NS
    """When the client received the grant."""
    tokens: dict[str, int] = field(default_factory=dict)
    held_ns: int = -1
    """Until when it certainly held the locks."""
    lost_ns: int = NEVER_NS
    """When the client was notified of the loss."""
    promised_ns: int = 0
    """Until when its lease was guaranteed."""
    writes: list[dict[str, int]] = field(default_factory=list)
    """The number of each guarded write, by the name of the lock."""


class LockUser:
    """Uses locks on a node, and records each step."""

    def __init__(self, locks: Locks, note: Callable[[str, str, dict[str, Any]], None]) -> None:
        self._locks = locks
        self._note = note
        locks.store.on_durable(self._saw)

    async def use(
        self,
        name: str,
        capacities: Mapping[str, int],
        *,
        lease_ms: int,
        wait_s: float | None,
        work: Sequence[Callable[[], Awaitable[Any]]] = (),
    ) -> str:
        """Hold locks, and make a guarded write after each piece of work.

        Returns "held" (by others), "lost", or "done". `name` must be unique.
        """
        clock = self._locks.store.clock
        lock: Lock | None = None
        self._note("asked", name, {"capacities": dict(capacities)})
        try:
            async with self._locks.hold(
                *capacities, capacity=capacities, lease_s=lease_ms / 1000, wait_s=wait_s, owner=name
            ) as lock:
                self._note("granted", name, {"id": lock.id, "tokens": lock.tokens})
                for piece in work:
                    await piece()
                    called_ns = clock.elapsed_ns()
                    numbers = await self._locks.store.run(partial(_write, lock=lock))
                    self._note("wrote", name, {"called_ns": called_ns, "numbers": numbers})
                self._note("ending", name, {"promised_ns": lock.until_ns})
        except LockHeld:
            self._note("refused", name, {})
            return "held"
        except LockLost:
            assert lock is not None
            self._note("lost", name, {"promised_ns": lock.until_ns})
            return "lost"
        self._note("released", name, {})
        return "done"

    def _saw(self, commit: Commit) -> None:
        for write in commit.writes:
            if type(write) is Put and write.key[0].startswith("ask#") and write.key[1] == "request":
                request = msgspec.json.decode(write.value)
                self._note("joined", request["owner"], {"id": request["id"]})


async def _write(tx: Transaction, lock: Lock) -> dict[str, int]:
    await lock.guard(tx)
    numbers: dict[str, int] = {}
    for name, token in lock.tokens.items():
        effect = await tx.get((EFFECTS, name), Effect) or Effect()
        effect.number += 1
        effect.stale += token < effect.token
        effect.token = max(token, effect.token)
        tx.put((EFFECTS, name), effect)
        numbers[name] = effect.number
    return numbers


def collect_uses(steps: Iterable[LockEvent], *, slack_ns: int = 0) -> list[Use]:
    """The uses of all clients, from their recorded steps. Each client's steps must be in order.

    `slack_ns` is the maximum difference between the clocks of nodes: a lease may end this much
    early.
    """
    uses: dict[str, Use] = {}
    joined: dict[tuple[str, str], int] = {}
    ending: dict[str, LockEvent] = {}
    for step in sorted(steps, key=lambda step: step.at_ns):
        if step.what == "asked":
            uses[step.use] = Use(step.use, step.facts["capacities"], step.at_ns)
        elif step.what == "joined":
            joined.setdefault((step.use, step.facts["id"]), step.at_ns)
        elif step.use in uses:
            _note_step(uses[step.use], step, joined, ending)
            if step.what == "released":
                end = ending[step.use]
                certain_ns = min(end.at_ns, end.facts["promised_ns"] - slack_ns)
                uses[step.use].held_ns = max(uses[step.use].held_ns, certain_ns)
    return list(uses.values())


def _note_step(
    use: Use, step: LockEvent, joined: dict[tuple[str, str], int], ending: dict[str, LockEvent]
) -> None:
    facts = step.facts
    match step.what:
        case "granted":
            use.granted_ns = use.held_ns = step.at_ns
            use.tokens = facts["tokens"]
            use.joined_ns = min(step.at_ns, joined.get((use.name, facts["id"]), NEVER_NS))
        case "wrote":
            use.held_ns = max(use.held_ns, facts["called_ns"])
            use.writes.append(facts["numbers"])
        case "ending":
            ending[use.name] = step
        case "lost":
            use.lost_ns, use.promised_ns = step.at_ns, facts["promised_ns"]


def judge_locks(uses: Iterable[Use], *, slack_ns: int = 0) -> None:
    """Raise a `Violation` if these uses are inconsistent.

    `slack_ns` is the same as for `collect_uses`.
    """
    granted = [use for use in uses if use.granted_ns != NEVER_NS]
    by_name: dict[str, list[Use]] = {}
    for use in granted:
        if set(use.tokens) != set(use.capacities):
            violated("all or none", f"{use.name} asked for {use.capacities}, has {use.tokens}")
        if use.lost_ns < use.promised_ns - slack_ns:
            early_s = (use.promised_ns - use.lost_ns) / 1e9
            violated("lost", f"{use.name} lost {use.tokens} {early_s} s before its lease was over")
        for name in use.tokens:
            by_name.setdefault(name, []).append(use)
    for name in sorted(by_name):
        order = sorted(by_name[name], key=lambda use: use.tokens[name])
        _judge_order(name, order)
        _judge_holders(name, order)
        _judge_writes(name, order)
    _judge_cycles(by_name, granted)


def _judge_order(name: str, order: list[Use]) -> None:
    """The order of tokens must be the order of requests."""
    for one, other in pairwise(order):
        if one.tokens[name] == other.tokens[name]:
            violated("token twice", f"{name}: {one.name} and {other.name} have {one.tokens[name]}")
    latest = order[0]
    for use in order[1:]:
        if use.granted_ns < latest.asked_ns:
            violated(
                "token went back",
                f"{name}: {use.name} had {use.tokens[name]} when {latest.name} asked, "
                f"and got {latest.tokens[name]}",
            )
        if use.joined_ns < latest.asked_ns:
            violated("out of order", f"{name}: {latest.name} has overtaken {use.name}")
        latest = max(latest, use, key=lambda use: use.asked_ns)


def _judge_holders(name: str, order: list[Use]) -> None:
    """The number of holders must never exceed the capacity."""
    changes: list[tuple[int, int, Use]] = []
    for number, use in enumerate(order):
        if use.held_ns > use.granted_ns:
            changes += [(use.granted_ns, number, use), (use.held_ns, number, use)]
    holders: dict[int, Use] = {}
    for _, number, use in sorted(changes, key=lambda change: change[:2]):
        if number in holders:
            del holders[number]
            continue
        holders[number] = use
        if len(holders) > max(holder.capacities[name] for holder in holders.values()):
            names = ", ".join(f"{u.name} ({u.tokens[name]})" for u in holders.values())
            violated("two holders", f"{name} is held by {names} at the same time")


def _judge_writes(name: str, order: list[Use]) -> None:
    """After a write by a newer token, no older token may write."""
    if order[0].capacities[name] > 1:
        return
    writes = [(numbers[name], use.tokens[name], use) for use in order for numbers in use.writes]
    writes.sort(key=lambda write: write[:2])
    for (number, token, use), (next_number, next_token, other) in pairwise(writes):
        if number == next_number or token > next_token:
            violated(
                "stale write",
                f"{name}: {other.name} ({next_token}) wrote number {next_number} after "
                f"{use.name} ({token}) wrote number {number}",
            )


def judge_effects(uses: Iterable[Use], effects: Mapping[str, Any]) -> None:
    """Raise a `Violation` if the final records under `EFFECTS` contradict the uses.

    A write by a client that had lost its lock is a violation as well, whether or not it was
    notified.
    """
    for use in uses:
        for name, number in [pair for numbers in use.writes for pair in numbers.items()]:
            if name not in effects or number > effects[name]["number"]:
                violated("not durable", f"{use.name} made write {number}: {name} has {effects}")
        for name, capacity in use.capacities.items():
            if capacity == 1 and name in effects and effects[name]["stale"]:
                violated("stale write", f"{name}: a write with an old token: {effects}")


def _judge_cycles(by_name: Mapping[str, list[Use]], granted: Sequence[Use]) -> None:
    """One order of all uses must agree with all tokens and with the time.

    Nodes of the graph are the uses, and the moments at which a use is known to have joined. A use
    comes before its moment, and uses that were requested later come after it.
    """
    number = {use.name: index for index, use in enumerate(granted)}
    after: list[list[int]] = [[] for _ in range(2 * len(granted))]
    for name, uses in by_name.items():
        order = sorted(uses, key=lambda use: use.tokens[name])
        for one, other in pairwise(order):
            after[number[one.name]].append(number[other.name])
    moments = sorted(granted, key=lambda use: use.joined_ns)
    first = len(granted)
    for index, use in enumerate(moments):
        after[number[use.name]].append(first + index)
        if index:
            after[first + index - 1].append(first + index)
    passed = 0
    for use in sorted(granted, key=lambda use: use.asked_ns):
        while passed < len(moments) and moments[passed].joined_ns < use.asked_ns:
            passed += 1
        if passed:
            after[first + passed - 1].append(number[use.name])
    left = _unordered(after)
    if left:
        names = ", ".join(granted[node].name for node in left if node < first)
        violated("cycle", f"no order of these agrees with all their tokens: {names[:2_000]}")


def _unordered(after: list[list[int]]) -> list[int]:
    """The nodes of a graph that cannot be ordered because they are on cycles."""
    before = [0] * len(after)
    for nodes in after:
        for node in nodes:
            before[node] += 1
    free = [node for node, count in enumerate(before) if not count]
    while free:
        for node in after[free.pop()]:
            before[node] -= 1
            if not before[node]:
                free.append(node)
    return [node for node, count in enumerate(before) if count]
