"""Many messages are taken in together, and each has its own verdict."""

import asyncio
from typing import Any

import pytest

from onceward import limits
from onceward.engine.base import Put
from onceward.errors import BadInput, KeyReused, Unavailable
from onceward.work.inbox import Receipt
from tests.schedule.cluster import TestEngine, virtual
from tests.work.apps import Apps


@virtual
async def test_many_messages_take_few_commits_and_come_out_in_their_order() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        messages = [{"body": n, "key": f"k{n}"} for n in range(100)]
        before = len(apps.commits)
        verdicts = await app.send_many("q", messages)
        assert len(apps.commits) - before <= 6
        assert [v.key for v in verdicts if isinstance(v, Receipt)] == [m["key"] for m in messages]
        again = await app.send_many("q", messages)
        assert [v.id for v in again if isinstance(v, Receipt) and v.duplicate] == [
            v.id for v in verdicts if isinstance(v, Receipt)
        ]
        assert await app.send_many("q", []) == []
    assert apps.problems == []


BAD_MESSAGES: list[Any] = [
    {"body": 1, "key": ""},
    {"body": object(), "key": "bad"},
    {"key": "no body"},
    {"body": 1, "key": "bad", "nonsense": 1},
    {"body": 1, "key": "bad", "queue": "other"},
    {"body": 1, "key": "bad", "delay_s": -1},
    {"body": 1, "key": "bad", "delay_s": 1, "due_ms": 1},
    {"body": 1, "key": "bad", "priority": 99},
    {"body": 1, "key": "bad", "order_key": ""},
    {"body": 1, "key": "bad", "order_key": "fine", "limit_key": "\ud800"},
    {"body": 1, "key": "bad", 5: 1},
    {"body": "x" * limits.BODY_BYTES_MAX, "key": "bad"},
    "text",
    None,
]


@virtual
async def test_a_message_that_is_refused_refuses_no_other_and_leaves_nothing() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        await app.queues.configure("q", limit_per_key=1)
        messages: list[Any] = []
        for n, bad in enumerate(BAD_MESSAGES):
            messages += [bad, {"body": n, "key": f"good {n}", "order_key": "fine"}]
        verdicts = await app.send_many("q", messages)
        for verdict in verdicts[::2]:
            assert isinstance(verdict, BadInput)
        for verdict in verdicts[1::2]:
            assert isinstance(verdict, Receipt)
            assert not verdict.duplicate
        seen = []
        while claims := await app.claim("q", "w", lease_s=10):
            seen += [claim.body for claim in claims]
            await app.complete(claims[0].id, claims[0].token)
        assert seen == list(range(len(BAD_MESSAGES)))
    assert apps.problems == []


@virtual
async def test_the_same_key_twice_in_one_call_is_one_message() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        first, same, other = await app.send_many(
            "q", [{"body": 1, "key": "k"}, {"body": 1, "key": "k"}, {"body": 2, "key": "k"}]
        )
        assert isinstance(first, Receipt)
        assert isinstance(same, Receipt)
        assert (same.id, same.duplicate) == (first.id, True)
        assert isinstance(other, KeyReused)
        await app.queues.configure("r", mismatch="record")
        first, other = await app.send_many("r", [{"body": 1, "key": "k"}, {"body": 2, "key": "k"}])
        assert isinstance(first, Receipt)
        assert isinstance(other, Receipt)
        assert (other.id, other.same_body) == (first.id, False)
    assert apps.problems == []


@virtual
async def test_messages_too_large_for_one_commit_together_are_taken_in_by_several() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        body = "x" * (limits.BODY_BYTES_MAX - 2)
        verdicts = await app.send_many("q", [{"body": body, "key": f"{n}"} for n in range(30)])
        assert all(isinstance(verdict, Receipt) for verdict in verdicts)
        jobs = [w for c in apps.commits for w in c if type(w) is Put and "#job" in w.key[1]]
        assert len(jobs) == 30


@virtual
async def test_messages_that_come_at_the_same_time_share_commits() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        apps.engines[0].latency_s = 0.001
        sent = [app.send("q", n % 80, key=f"k{n % 80}") for n in range(100)]
        receipts = await asyncio.gather(*sent)
        made = [c for c in apps.commits if any(w.key[1].endswith("#job") for w in c)]
        assert len(made) <= 5, "one alone, then 33 in each"
        assert [r.key for r in receipts] == [f"k{n % 80}" for n in range(100)]
        assert len({r.id for r in receipts}) == 80
        firsts = [r for r in receipts if not r.duplicate]
        assert len(firsts) == 80
    assert apps.problems == []


@virtual
async def test_of_messages_at_the_same_time_each_succeeds_or_fails_alone() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        await app.send("q", "first", key="known")
        apps.engines[0].latency_s = 0.001
        good = [app.send("q", n, key=f"k{n}") for n in range(10)]
        bad = [
            app.send("q", "other", key="known"),
            app.send("q", object(), key="odd"),
            app.send("q", 1, key=""),
            app.send("no such name", 1, key="k"),
            app.send("q", 1, key="k", order_key="o", limit_key="\ud800"),
        ]
        verdicts = await asyncio.gather(*good, *bad, return_exceptions=True)
        assert all(isinstance(verdict, Receipt) for verdict in verdicts[:10])
        assert isinstance(verdicts[10], KeyReused)
        assert all(isinstance(verdict, BadInput) for verdict in verdicts[10:])
    assert apps.problems == []


@virtual
async def test_messages_too_large_for_one_commit_are_divided() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        apps.engines[0].latency_s = 0.001
        body = "x" * (limits.BODY_BYTES_MAX - 10)
        receipts = await asyncio.gather(*[app.send("q", body, key=f"k{n}") for n in range(40)])
        assert len({receipt.id for receipt in receipts}) == 40
    assert apps.problems == []


@virtual
async def test_a_caller_that_goes_away_takes_no_other_message_with_it() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        apps.engines[0].latency_s = 1
        tasks = [asyncio.create_task(app.send("q", n, key=f"k{n}")) for n in range(10)]
        await apps.sleep(0.5)
        tasks[3].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[3], asyncio.CancelledError)
        assert sum(isinstance(result, Receipt) for result in results) == 9
        apps.engines[0].latency_s = 0
        assert (await app.send("q", 3, key="k3")).duplicate, "it was taken in all the same"
    assert apps.problems == []


@virtual
async def test_all_hear_of_an_engine_that_is_away() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        apps.engines[0].cut_off = True
        sent = [app.send("q", n, key=f"k{n}") for n in range(10)]
        for result in await asyncio.gather(*sent, return_exceptions=True):
            assert isinstance(result, Unavailable)
        apps.engines[0].cut_off = False
        assert not (await app.send("q", 1, key="k1")).duplicate


@virtual
async def test_what_is_under_way_is_finished_when_the_application_stops() -> None:
    apps = Apps(shared=False)
    app = await apps.make().start()
    apps.engines[0].latency_s = 1
    tasks = [asyncio.create_task(app.send("q", n, key=f"k{n}")) for n in range(10)]
    await apps.sleep(0.5)
    await app.stop()
    assert len({(await task).id for task in tasks}) == 10


@virtual
async def test_keys_of_many_messages_are_read_with_few_calls_over_a_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apps = Apps(shared=False)
    monkeypatch.setattr(TestEngine, "shares_reads", True)
    async with apps.make() as app:
        await app.queues.configure("q", key_fields=["id"])
        engine = apps.engines[0]
        get, asked = engine.get, []

        async def counting(keys: Any, now_ms: int) -> Any:
            asked.append([key for key in keys if key[0].startswith("inbox#")])
            return await get(keys, now_ms)

        monkeypatch.setattr(engine, "get", counting)
        messages: list[Any] = [{"body": {"id": str(n)}} for n in range(30)]
        messages += [{"body": 1}, {"body": 1, "key": 5}]
        verdicts = await app.send_many("q", messages)
        assert [isinstance(verdict, Receipt) for verdict in verdicts] == [True] * 30 + [False] * 2
        assert [len(keys) for keys in asked if keys] == [30]
        asked.clear()
        engine.latency_s = 0.001
        bodies = [{"id": f"more {n}"} for n in range(30)]
        await asyncio.gather(*[app.send("q", body) for body in bodies])
        assert [len(keys) for keys in asked if keys] == [1, 29], "of one alone, and of the others"
        with pytest.raises(BadInput):
            await app.send("q", 1)
    assert apps.problems == []


@virtual
async def test_messages_of_one_call_are_read_and_committed_at_once_over_a_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apps = Apps(shared=False)
    monkeypatch.setattr(TestEngine, "shares_reads", True)
    async with apps.make() as app:
        apps.engines[0].latency_s = 1
        messages: list[Any] = [{"body": n, "key": f"k{n}"} for n in range(500)]
        before_ms = app.store.clock.now_ms()
        verdicts = await app.send_many("q", messages)
        assert app.store.clock.now_ms() - before_ms == 4_000, "one read and one commit"
        assert [v.key for v in verdicts if isinstance(v, Receipt)] == [m["key"] for m in messages]
        before_ms = app.store.clock.now_ms()
        again = await app.send_many("q", messages)
        assert app.store.clock.now_ms() - before_ms == 6_000, "keys, their jobs, and a check"
        assert [v.id for v in again if isinstance(v, Receipt) and v.duplicate] == [
            v.id for v in verdicts if isinstance(v, Receipt)
        ]
    assert apps.problems == []


@virtual
async def test_messages_that_depend_on_each_other_stay_in_order_over_a_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apps = Apps(shared=False)
    monkeypatch.setattr(TestEngine, "shares_reads", True)
    async with apps.make() as app:
        await app.queues.configure("q", limit_per_key=100)
        engine = apps.engines[0]
        get, asked = engine.get, []

        async def counting(keys: Any, now_ms: int) -> Any:
            asked.append([key for key in keys if key[0].startswith(("inbox#", "order#", "limit#"))])
            return await get(keys, now_ms)

        monkeypatch.setattr(engine, "get", counting)
        options = {"order_key": "o", "limit_key": "l"}
        messages: list[Any] = [{"body": n, "key": f"k{n}", **options} for n in range(60)]
        messages += [{"body": 1, "key": "bad", "limit_key": "\ud800"}, {"body": 2, "key": "k0"}]
        verdicts = await app.send_many("q", messages)
        assert all(isinstance(verdict, Receipt) for verdict in verdicts[:60])
        assert isinstance(verdicts[60], BadInput)
        assert isinstance(verdicts[61], KeyReused)
        assert len([keys for keys in asked if keys]) <= 6
        for n in range(60):
            [claim] = await app.claim("q", "w", lease_s=10)
            assert claim.body == n
            await app.complete(claim.id, claim.token)
    assert apps.problems == []


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize("changed", ["key", "job"])
@virtual
async def test_what_is_read_together_is_checked_by_the_commit(
    monkeypatch: pytest.MonkeyPatch, changed: str, many: bool
) -> None:
    apps = Apps()
    monkeypatch.setattr(TestEngine, "shares_reads", True)
    async with apps.make() as app, apps.make() as other:
        known = await other.send("q", "known", key="known")
        [claim] = await other.claim("q", "w", lease_s=10)
        engine, get, asked = apps.engines[0], apps.engines[0].get, 0

        async def change_first(keys: Any, now_ms: int) -> Any:
            nonlocal asked
            found = await get(keys, now_ms)
            if any(key[1].startswith(known.id) for key in keys):
                asked += 1
                if asked == 1 and changed == "job":
                    await other.complete(claim.id, claim.token, "done")
                elif asked == 1:
                    await other.send("q", "theirs", key="k1")
            return found

        monkeypatch.setattr(engine, "get", change_first)
        messages: list[Any] = [{"body": f"ours {n}", "key": f"k{n}"} for n in range(3)]
        messages.append({"body": "known", "key": "known"})
        if many:
            verdicts: list[Any] = list(await app.send_many("q", messages))
        else:
            engine.latency_s = 0.001
            sent = [app.send("q", m["body"], key=m["key"]) for m in [{"body": 0, "key": "first"}]]
            sent += [app.send("q", m["body"], key=m["key"]) for m in messages]
            verdicts = (await asyncio.gather(*sent, return_exceptions=True))[1:]
        assert asked > 1, "the commit met a conflict"
        assert [verdicts[n].duplicate for n in (0, 2, 3)] == [False, False, True]
        assert verdicts[3].id == known.id
        if changed == "job":
            assert (verdicts[3].state, verdicts[3].result) == ("succeeded", "done")
        else:
            assert isinstance(verdicts[1], KeyReused)
    assert apps.problems == []
