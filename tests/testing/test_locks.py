"""The judge of lock histories finds what cannot be right, and passes what can."""

import asyncio
from dataclasses import replace

import pytest

from onceward.engine.memory import MemoryEngine
from onceward.service.locks import Locks
from onceward.service.node import Node
from onceward.store import Store
from onceward.testing import VirtualClock
from onceward.testing.locks import LockUser, Step, Use, collect_uses, judge_locks
from onceward.testing.simulation import Violation
from tests.service.cluster import virtual

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
    try:
        judge_locks(uses, slack_ns=int(slack_s * S))
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


def test_more_than_the_capacity_of_a_semaphore_are_found() -> None:
    three = [use(name, {"a": n}, n / 10, 5, capacity=3) for n, name in enumerate("xyz", 1)]
    assert verdict(*three) == "right"
    assert verdict(*three, use("w", {"a": 4}, 1, 5, capacity=3)) == "two holders"


def test_a_token_that_comes_twice_is_found() -> None:
    assert verdict(use("x", {"a": 1}, 0, 2), use("y", {"a": 1}, 5, 9)) == "token twice"


def test_a_token_that_goes_back_is_found() -> None:
    assert verdict(use("x", {"a": 8}, 0, 2), use("y", {"a": 1}, 5, 9)) == "token went back"


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


def test_a_large_history_is_judged_quickly() -> None:
    uses = [
        use(str(n), {f"n{n % 50}": n // 50 + 1, f"m{n % 49}": n // 49 + 1}, n, n + 0.9, granted=n)
        for n in range(20_000)
    ]
    assert verdict(*[replace(u, joined_ns=u.granted_ns) for u in uses]) == "right"


def test_steps_are_put_together_whatever_is_missing() -> None:
    steps = [
        Step(1 * S, "asked", "x", {"capacities": {"a": 1}}),
        Step(2 * S, "joined", "x", {"id": "lost"}),
        Step(4 * S, "joined", "x", {"id": "one"}),
        Step(8 * S, "joined", "x", {"id": "one"}),
        Step(6 * S, "granted", "x", {"id": "one", "tokens": {"a": 3}}),
        Step(8 * S, "wrote", "x", {"called_ns": 7 * S, "numbers": {"a": 1}}),
        Step(9 * S, "ending", "x", {"promised_ns": 30 * S}),
        Step(1 * S, "asked", "y", {"capacities": {"a": 1}}),
        Step(9 * S, "granted", "unknown", {}),
    ]
    x, y = collect_uses(steps)
    assert (x.joined_ns, x.granted_ns, x.held_ns) == (4 * S, 6 * S, 7 * S)
    assert (x.tokens, x.writes, y.tokens) == ({"a": 3}, [{"a": 1}], {})
    released = Step(10 * S, "released", "x", {})
    assert collect_uses([*steps, released])[0].held_ns == 9 * S
    assert collect_uses([*steps, released], slack_ns=22 * S)[0].held_ns == 8 * S
    lost = Step(10 * S, "lost", "x", {"promised_ns": 30 * S})
    assert collect_uses([*steps, lost])[0].promised_ns == 30 * S


@virtual
async def test_uses_of_real_locks_leave_notes_that_are_right() -> None:
    engine = await MemoryEngine().open()
    store = Store(engine, VirtualClock())
    steps: list[Step] = []

    def note(what: str, name: str, facts: dict) -> None:
        steps.append(Step(store.clock.elapsed_ns(), what, name, facts))

    async with Node(store, slots=2) as node:
        user = LockUser(Locks(store, node.dispatcher), note)

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
    assert [u.tokens for u in uses] == [{"a": 1}, {}, {"a": 2}, {"a": 3}]
    forged = [replace(u, tokens={"a": 4 - u.tokens["a"]}) for u in uses if u.tokens]
    with pytest.raises(Violation):
        judge_locks(forged)
