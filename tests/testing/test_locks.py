"""The judge of lock histories finds what cannot be right, and passes what can."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from onceward.engine.memory import MemoryEngine
from onceward.errors import LockLost
from onceward.node import Node
from onceward.store import Store
from onceward.testing import VirtualClock
from onceward.testing.locks import (
    Effect,
    LockEvent,
    LockUser,
    Use,
    collect_uses,
    judge_effects,
    judge_locks,
)
from onceward.testing.simulation import Violation
from onceward.testing.simulation.history import NEVER_NS
from tests.locks.lockers import locks_of
from tests.schedule.cluster import virtual

S = 1_000_000_000


def use(name: str, tokens: dict[str, int], asked: float, held: float = 0, **changes) -> Use:
    """Someone who asked, had it a second later, and held it until a certain time."""
    return Use(
        name,
        dict.fromkeys(tokens, changes.pop("capacity", 1)),
        int(asked * S),
        joined_ns=int(changes.pop("joined", asked + 1) * S),
        granted_ns=int(changes.pop("granted", asked + 1) * S),
        tokens=tokens,
        held_ns=int(held * S),
        **changes,
    )


def verdict(*uses: Use, slack_s: float = 0) -> str:
    return found(lambda: judge_locks(uses, slack_ns=int(slack_s * S)))


def found(judge: Callable[[], None]) -> str:
    try:
        judge()
    except Violation as violation:
        return violation.kind
    return "right"


def test_uses_one_after_the_other_are_right() -> None:
    assert verdict() == "right"
    assert verdict(use("x", {"a": 1}, 0, 5), use("y", {"a": 2}, 2, 9, granted=6)) == "right"
    assert verdict(use("x", {"a": 1}, 0, 5), use("y", {"b": 1}, 0, 5)) == "right"
    never = Use("z", {"a": 1}, 0)
    assert verdict(use("x", {"a": 7}, 0, 5), never) == "right"


def test_a_grant_of_some_of_the_names_is_found() -> None:
    one = use("x", {"a": 1, "b": 1}, 0, 5)
    assert verdict(one) == "right"
    assert verdict(replace(one, tokens={"a": 1})) == "all or none"
    assert verdict(replace(one, tokens={"a": 1, "b": 1, "c": 1})) == "all or none"


def test_two_holders_at_one_moment_are_found() -> None:
    one = use("x", {"a": 1}, 0, 5)
    assert verdict(one, use("y", {"a": 2}, 3, 6)) == "two holders"
    assert verdict(one, use("y", {"a": 2}, 3, 6, granted=5)) == "right"
    assert verdict(one, use("y", {"a": 2, "b": 1}, 3, 6)) == "two holders"


def test_two_holders_are_found_after_any_number_that_were_right() -> None:
    right = [use(str(n), {"a": n}, 10 * n, 10 * n + 5) for n in range(1, 4)]
    assert verdict(*right) == "right"
    late = [use("x", {"a": 4}, 40, 45), use("y", {"a": 5}, 42, 46)]
    with pytest.raises(Violation, match=r"a is held by x \(4\), y \(5\) at the same time"):
        judge_locks([*right, *late])


def test_who_was_told_and_did_nothing_may_not_have_held_any_more() -> None:
    one = use("x", {"a": 1}, 0, 5)
    other = use("y", {"a": 2}, 2, 3)
    assert other.granted_ns == other.held_ns
    assert verdict(one, other) == "right"
    assert verdict(one, replace(other, held_ns=other.held_ns + 1)) == "two holders"


def test_more_than_the_capacity_of_a_semaphore_are_found() -> None:
    three = [use(name, {"a": n}, n / 10, 5, capacity=3) for n, name in enumerate("xyz", 1)]
    assert verdict(*three) == "right"
    assert verdict(*three, use("w", {"a": 4}, 1, 5, capacity=3)) == "two holders"


def test_a_token_that_comes_twice_is_found() -> None:
    assert verdict(use("x", {"a": 1}, 0, 2), use("y", {"a": 1}, 5, 9)) == "token twice"


def test_a_token_that_goes_back_is_found() -> None:
    assert verdict(use("x", {"a": 8}, 0, 2), use("y", {"a": 1}, 5, 9)) == "token went back"


def test_a_token_that_was_told_just_when_another_asked_may_be_the_newer_one() -> None:
    newer = use("x", {"a": 2}, 0, 5, joined=5, granted=5)
    older = use("y", {"a": 1}, 5, 5, joined=5, granted=5)
    assert verdict(newer, older) == "right"
    assert verdict(newer, replace(older, asked_ns=5 * S + 1)) == "token went back"


def test_who_was_overtaken_in_line_is_found() -> None:
    first = use("x", {"a": 2}, 0, 9, joined=1, granted=7)
    late = use("y", {"a": 1}, 2, 6)
    assert verdict(first, late) == "out of order"
    assert verdict(replace(first, joined_ns=3 * S), late) == "right"


def test_a_lease_lost_before_its_time_is_found() -> None:
    one = use("x", {"a": 1}, 0, 2, lost_ns=3 * S, promised_ns=5 * S)
    assert verdict(one) == "lost"
    assert verdict(one, slack_s=2) == "right"
    assert verdict(replace(one, lost_ns=5 * S)) == "right"
    just = replace(one, lost_ns=5 * S - 1)
    assert found(lambda: judge_locks([just])) == "lost"
    with pytest.raises(Violation, match=r"x lost \{'a': 1\} 2\.0 s before its lease was over"):
        judge_locks([one])


def test_a_write_by_an_old_token_is_found() -> None:
    one = use("x", {"a": 1}, 0, 2, writes=[{"a": 1}])
    other = use("y", {"a": 2}, 3, 5, writes=[{"a": 2}, {"a": 4}])
    assert verdict(one, other) == "right"
    assert verdict(replace(one, writes=[{"a": 1}, {"a": 3}]), other) == "stale write"
    assert verdict(replace(one, writes=[{"a": 2}]), other) == "stale write"
    shared = [replace(u, capacities={"a": 2}) for u in (replace(one, writes=[{"a": 3}]), other)]
    assert verdict(*shared) == "right"


def test_orders_of_two_names_that_contradict_each_other_are_found() -> None:
    """Each name by itself is right: all asked at the same time."""
    x = use("x", {"a": 1, "b": 2}, 0, joined=9, granted=9)
    y = use("y", {"b": 1, "a": 2}, 0, joined=9, granted=9)
    assert verdict(x, y) == "cycle"
    assert verdict(x, replace(y, tokens={"b": 3, "a": 2})) == "right"


def test_a_cycle_through_three_names_is_found() -> None:
    x = use("x", {"a": 1, "b": 2}, 0, joined=9, granted=9)
    y = use("y", {"b": 1, "c": 2}, 0, joined=9, granted=9)
    z = use("z", {"c": 1, "a": 2}, 0, joined=9, granted=9)
    assert verdict(x, y, z) == "cycle"


def test_an_order_of_names_that_contradicts_the_time_is_found() -> None:
    """x came before y by the time, y before z by one name, and z before x by another."""
    x = use("x", {"a": 2}, 0, joined=1, granted=9)
    y = use("y", {"b": 1}, 2, joined=9, granted=9)
    z = use("z", {"b": 2, "a": 1}, 0, joined=9, granted=9)
    assert verdict(x, y, z) == "cycle"
    assert verdict(replace(x, joined_ns=9 * S), y, z) == "right"
    between = use("w", {"c": 1}, 0, joined=1.5, granted=9)
    with pytest.raises(Violation, match=r"agrees with all their tokens: x, y, z$"):
        judge_locks([x, y, z, between])
    assert verdict(x, replace(y, tokens={"b": 3}), z, between) == "right"


def test_who_joined_before_asking_is_found() -> None:
    assert verdict(use("x", {"a": 1}, 5, joined=4, granted=6)) == "cycle"
    assert verdict(use("x", {"a": 1}, 5, joined=5, granted=6)) == "right"


def test_a_large_history_is_judged_quickly() -> None:
    uses = [
        use(str(n), {f"n{n % 50}": n // 50 + 1, f"m{n % 49}": n // 49 + 1}, n, n + 0.9, granted=n)
        for n in range(20_000)
    ]
    assert verdict(*[replace(u, joined_ns=u.granted_ns) for u in uses]) == "right"


def test_steps_are_put_together_whatever_is_missing() -> None:
    steps = [
        LockEvent(1 * S, "asked", "x", {"capacities": {"a": 1}}),
        LockEvent(2 * S, "joined", "x", {"id": "lost"}),
        LockEvent(4 * S, "joined", "x", {"id": "one"}),
        LockEvent(8 * S, "joined", "x", {"id": "one"}),
        LockEvent(6 * S, "granted", "x", {"id": "one", "tokens": {"a": 3}}),
        LockEvent(8 * S, "wrote", "x", {"called_ns": 7 * S, "numbers": {"a": 1}}),
        LockEvent(9 * S, "ending", "x", {"promised_ns": 30 * S}),
        LockEvent(1 * S, "asked", "y", {"capacities": {"a": 1}}),
        LockEvent(9 * S, "granted", "unknown", {}),
    ]
    x, y = collect_uses(steps)
    assert (x.joined_ns, x.granted_ns, x.held_ns) == (4 * S, 6 * S, 7 * S)
    assert (x.tokens, x.writes, y.tokens) == ({"a": 3}, [{"a": 1}], {})
    released = LockEvent(10 * S, "released", "x", {})
    assert collect_uses([*steps, released])[0].held_ns == 9 * S
    assert collect_uses([*steps, released], slack_ns=22 * S)[0].held_ns == 8 * S
    lost = LockEvent(10 * S, "lost", "x", {"promised_ns": 30 * S})
    assert collect_uses([*steps, lost])[0].promised_ns == 30 * S


def test_of_who_only_asked_nothing_more_is_known() -> None:
    [only] = collect_uses([LockEvent(S, "asked", "x", {"capacities": {"a": 1}})])
    assert only == Use("x", {"a": 1}, S, NEVER_NS, NEVER_NS, {}, -1, NEVER_NS, 0, [])


def test_a_lease_is_certain_until_its_end_unless_clocks_are_apart() -> None:
    steps = [
        LockEvent(1, "asked", "x", {"capacities": {"a": 1}}),
        LockEvent(2, "granted", "x", {"id": "one", "tokens": {"a": 3}}),
        LockEvent(9, "ending", "x", {"promised_ns": 8}),
        LockEvent(10, "released", "x", {}),
    ]
    assert collect_uses(steps)[0].held_ns == 8
    assert collect_uses(steps, slack_ns=1)[0].held_ns == 7


def effects(number: int, stale: int = 0) -> dict[str, Any]:
    return {"a": {"number": number, "token": 1, "stale": stale}}


def test_a_write_that_was_told_and_is_not_there_in_the_end_is_found() -> None:
    one = use("x", {"a": 1}, 0, 2, writes=[{"a": 1}, {"a": 2}])
    assert found(lambda: judge_effects([one], effects(2))) == "right"
    assert found(lambda: judge_effects([one], effects(3))) == "right"
    assert found(lambda: judge_effects([one], effects(1))) == "not durable"
    assert found(lambda: judge_effects([one], {})) == "not durable"


def test_a_write_with_an_old_token_is_found_also_if_nobody_was_told_of_it() -> None:
    one = use("x", {"a": 1}, 0, 2)
    assert found(lambda: judge_effects([one], {})) == "right"
    assert found(lambda: judge_effects([one], effects(2, stale=0))) == "right"
    assert found(lambda: judge_effects([one], effects(2, stale=1))) == "stale write"
    shared = use("x", {"a": 1}, 0, 2, capacity=2)
    assert found(lambda: judge_effects([shared], effects(2, stale=1))) == "right"


@dataclass
class Held:
    """A lock, as a node believes to hold it."""

    tokens: dict[str, int]
    lost: bool = False
    id: str = "r"
    until_ns: int = 30 * S

    async def guard(self, tx: Any) -> None:
        if self.lost:
            raise LockLost("it is gone")


class Free:
    """The locks of a node, where everyone gets what was made before."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.steps: list[tuple[str, str, dict[str, Any]]] = []
        self.terms: dict[str, Any] = {}

    @asynccontextmanager
    async def hold(self, *names: str, **terms: Any) -> AsyncIterator[Held]:
        self.terms = {"names": names, **terms}
        yield self.lock

    async def use(self, name: str, lock: Held, writes: int = 1) -> str:
        self.lock = lock

        async def nothing() -> None: ...

        user = LockUser(self, lambda *step: self.steps.append(step))  # type: ignore[arg-type]
        capacities = dict.fromkeys(lock.tokens, 1)
        work = [nothing] * writes
        return await user.use(name, capacities, lease_ms=900, wait_s=5, work=work)

    async def effect(self, name: str) -> Any:
        return await self.store.run(lambda tx: tx.get(("effect", name)))


async def new_free() -> Free:
    return Free(Store(await MemoryEngine().open(), VirtualClock()))


@virtual
async def test_each_guarded_write_is_counted_and_told() -> None:
    free = await new_free()
    assert await free.use("x", Held({"a": 3, "b": 8}), writes=2) == "done"
    wrote = [facts["numbers"] for what, _, facts in free.steps if what == "wrote"]
    assert wrote == [{"a": 1, "b": 1}, {"a": 2, "b": 2}]
    assert await free.effect("a") == {"number": 2, "token": 3, "stale": 0}
    assert await free.effect("b") == {"number": 2, "token": 8, "stale": 0}
    assert free.terms == {
        "names": ("a", "b"),
        "capacity": {"a": 1, "b": 1},
        "lease_s": 0.9,
        "wait_s": 5,
        "owner": "x",
    }


@virtual
async def test_writes_with_an_old_token_are_counted_for_ever() -> None:
    free = await new_free()
    for token in (3, 9, 9, 4, 4, 10):
        await free.use(str(token), Held({"a": token}))
    assert await free.effect("a") == {"number": 6, "token": 10, "stale": 2}
    assert msgspec.json.decode(b"{}", type=Effect) == Effect(0, 0, 0)


@virtual
async def test_a_lock_that_is_lost_writes_nothing_and_that_is_told() -> None:
    free = await new_free()
    assert await free.use("x", Held({"a": 3}, lost=True)) == "lost"
    assert await free.effect("a") is None
    assert free.steps == [
        ("asked", "x", {"capacities": {"a": 1}}),
        ("granted", "x", {"id": "r", "tokens": {"a": 3}}),
        ("lost", "x", {"promised_ns": 30 * S}),
    ]


@virtual
async def test_uses_of_real_locks_leave_notes_that_are_right() -> None:
    engine = await MemoryEngine().open()
    store = Store(engine, VirtualClock())
    steps: list[LockEvent] = []

    def note(what: str, name: str, facts: dict) -> None:
        steps.append(LockEvent(store.clock.elapsed_ns(), what, name, facts))

    async with Node(store, slots=2) as node:
        user = LockUser(locks_of(node), note)

        async def pause() -> None:
            await store.clock.sleep(1)

        results = await asyncio.gather(
            *[
                user.use(str(n), {"a": 1}, lease_ms=900, wait_s=wait_s, work=[pause, pause])
                for n, wait_s in enumerate([None, 0, 3, 5])
            ]
        )
    assert results == ["done", "held", "done", "done"]
    uses = collect_uses(steps)
    judge_locks(uses)
    assert [len(u.writes) for u in uses] == [2, 0, 2, 2]
    told = ["asked", "joined", "granted", "wrote", "wrote", "ending", "released"]
    assert [step.what for step in steps if step.use == "0"] == told
    assert [step.what for step in steps if step.use == "1"] == ["asked", "refused"]
    assert all(u.joined_ns < u.granted_ns < u.held_ns for u in uses[2:]), "they stood in line"
    assert [u.tokens for u in uses] == [{"a": 1}, {}, {"a": 2}, {"a": 3}]
    forged = [replace(u, tokens={"a": 4 - u.tokens["a"]}) for u in uses if u.tokens]
    with pytest.raises(Violation):
        judge_locks(forged)
