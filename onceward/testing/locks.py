"""Test tools for locks: uses that record events, and a checker of the record.

`LockUser.use` holds locks for a while and writes under their guard, on any node, and notes
each step with its time. `judge_locks` takes the notes of all clients, whatever became of
them, and raises a `Violation` if they cannot have come about rightly. It knows tokens, times
and nothing else: the order of the tokens of a name is the witness for who came first.

What it finds: "all or none" (a grant without all tokens), "token twice", "token went back"
(smaller than one that was known before it was asked for), "out of order" (someone who stood
in line already was overtaken), "two holders" (more than the capacity at one moment), "lost"
(gone before its lease was over), "stale write" (by a token older than one that had written),
and "cycle" (the orders of several names contradict each other, or the time).

All times are by one clock, such as that of one machine. Clients that were killed or paused
leave notes that end in the middle: what they do not say is not held against anyone.
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
"""The partition where guarded writes are counted, by the name of the lock."""


class Effect(msgspec.Struct):
    """The guarded writes under one name."""

    number: int = 0
    token: int = 0
    """The newest that has written."""
    stale: int = 0
    """How many were by an older one."""


class LockEvent(NamedTuple):
    """Something that a client did or was told."""

    at_ns: int
    what: str
    use: str
    facts: dict[str, Any]


@dataclass(slots=True)
class Use:
    """One use of locks, as its client lived through it."""

    name: str
    capacities: dict[str, int]
    asked_ns: int
    joined_ns: int = NEVER_NS
    """When it was known to hold, or to stand in line."""
    granted_ns: int = NEVER_NS
    """When it was told that it holds."""
    tokens: dict[str, int] = field(default_factory=dict)
    held_ns: int = -1
    """Until when it held for certain."""
    lost_ns: int = NEVER_NS
    """When it was told that it does not hold any more."""
    promised_ns: int = 0
    """Until when it could count on its lease."""
    writes: list[dict[str, int]] = field(default_factory=list)
    """The number of each guarded write, by the name of the lock."""


class LockUser:
    """Uses locks on a node, and notes each step."""

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
        """Hold locks, and after each piece of work make a guarded write.

        Returns "held" by others, "lost", or "done". `name` is for this use alone.
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
    """What became of each use, from the steps of all clients, each client's in their order.

    `slack_ns` is how far the clocks of nodes may be apart: a lease may end so much early.
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
    """Raise a `Violation` if these uses cannot have come about rightly.

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
    """The order of tokens is the order in which they came."""
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
    """At no moment do more hold it than may."""
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
    """Once a newer token has written, an older one has not."""
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
    """Raise a `Violation` if what stands under `EFFECTS` in the end, by name, is not what the
    uses were told; or if someone has written there whose lock was lost, told or not."""
    for use in uses:
        for name, number in [pair for numbers in use.writes for pair in numbers.items()]:
            if name not in effects or number > effects[name]["number"]:
                violated("not durable", f"{use.name} made write {number}: {name} has {effects}")
        for name, capacity in use.capacities.items():
            if capacity == 1 and name in effects and effects[name]["stale"]:
                violated("stale write", f"{name}: somebody wrote with an old token: {effects}")


def _judge_cycles(by_name: Mapping[str, list[Use]], granted: Sequence[Use]) -> None:
    """There is one order of all uses that agrees with all tokens and with the time.

    Nodes of the graph are the uses and, between them, the moments when one is known to have
    joined: it comes before these, and whoever asked later comes after them.
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
    """The nodes of a graph that have no place in an order, since they are on cycles."""
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
