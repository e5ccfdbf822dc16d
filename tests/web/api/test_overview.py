"""The server at a glance, and live, for those who may see it."""

from functools import partial
from typing import Any

from onceward import limits
from onceward.errors import Unreachable
from onceward.webhooks import endpoints, signing
from onceward.webhooks.answers import Answer
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, keyed, serving, serving_to
from tests.webhooks.test_delivery import Post, World
from tests.work.apps import Apps


async def send(caller: Caller, queue: str, *keys: str) -> None:
    for key in keys:
        await caller("POST", f"/v1/inbox/{queue}", {"body": 1, "key": key})


@virtual
async def test_the_activity_tells_of_the_last_seconds_once_each() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        await send(caller, "q", "a", "b", "a")
        await apps.sleep(2.5)
        first = await caller.ok("GET", "/v1/activity")
        assert first["every_ms"] == 1_000
        assert first["totals"]["accepted"] == 2
        assert first["totals"]["repeats"] == 1
        assert [sample[1:3] for sample in first["samples"]] == [[2, 1], [0, 0]]
        await apps.sleep(1)
        after = first["last"]
        [sample] = (await caller.ok("GET", f"/v1/activity?after={after}"))["samples"]
        assert sample[0] > first["samples"][-1][0]
        assert (await caller.ok("GET", f"/v1/activity?after={after + 1}"))["samples"] == []
        for after_ in ("x", "-1", "1.5"):
            answer = await caller("GET", f"/v1/activity?after={after_}")
            assert answer.verdict == (422, "bad_parameter")


@virtual
async def test_the_overview_tells_of_queues_and_what_needs_attention() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        await send(caller, "q", "a", "b", "a")
        [job] = (await caller.ok("POST", "/v1/queues/q/claim", {}))["jobs"]
        said = {"token": job["token"], "reason": "x", "final": True}
        await caller.ok("POST", f"/v1/jobs/{job['id']}/fail", said)
        await caller.ok("POST", "/v1/queues/idle/pause")
        secret = signing.new_secret(caller.app.store.ids)
        url = "https://x.example"
        await caller.app.store.run(
            partial(endpoints.put, id_="e", url=url, secret=secret, caller="bob")
        )
        note = partial(endpoints.note, id_="e", failing=True, said="500", caller="bob")
        await caller.app.store.run(note)
        await apps.sleep(limits.CENSUS_S * limits.CENSUS_OTHERS + 70)
        found = await caller.ok("GET", "/v1/overview")
        assert (found["node"], found["dev"]) == (caller.app.name, True)
        assert found["jobs"] == {"queued": 1, "failed": 1}
        queue, idle = found["queues"]
        assert (queue["name"], queue["accepted"], queue["repeats"], queue["failed"]) == (
            "q",
            2,
            1,
            1,
        )
        assert (idle["name"], idle["paused"]) == ("idle", True)
        kinds = {one["kind"]: one for one in found["attention"]}
        assert set(kinds) == {"failed", "stuck", "endpoint"}
        assert kinds["failed"]["count"] == 1
        assert (kinds["endpoint"]["name"], kinds["endpoint"]["caller"]) == ("e", "bob")
        await caller.ok("POST", "/v1/queues/q/pause")  # on purpose: nobody need look
        kinds = {one["kind"] for one in (await caller.ok("GET", "/v1/overview"))["attention"]}
        assert kinds == {"failed", "endpoint"}


@virtual
async def test_a_clock_that_jumped_is_told_of() -> None:
    async with serving() as caller:
        clock = caller.app.store.clock
        wall_ns = clock._wall_ns
        clock._wall_ns = lambda: wall_ns() + 3_600 * 10**9
        [alarm] = (await caller.ok("GET", "/v1/overview"))["attention"]
        assert (alarm["kind"], round(alarm["count"], -3)) == ("clock", 3_600_000)


@virtual
async def test_each_sees_what_its_scopes_allow() -> None:
    apps = Apps(shared=False)
    auth, keys = keyed(ann="manage:a send:*", bob="operate:*", eve="send:a")
    async with serving(apps.make(), auth) as caller:
        ann, bob, eve = (Caller(caller.server, keys[name]) for name in ("ann", "bob", "eve"))
        await send(ann, "a", "k", "k")
        await send(ann, "b", "k")
        await apps.sleep(2)
        assert [q["name"] for q in (await ann.ok("GET", "/v1/overview"))["queues"]] == ["a"]
        assert (await eve.ok("GET", "/v1/overview"))["queues"] == []
        [own] = (await ann.ok("GET", "/v1/senders"))["senders"]
        assert (own["queue"], own["sender"], own["accepted"], own["repeats"]) == (
            "a",
            "key:ann",
            1,
            1,
        )
        assert own["ack_ms"] is not None
        assert len((await bob.ok("GET", "/v1/senders"))["senders"]) == 2
        assert len((await bob.ok("GET", "/v1/senders?queue=b"))["senders"]) == 1
        assert (await eve.ok("GET", "/v1/senders"))["senders"] == []
        anyone = Caller(caller.server)
        for path in ("activity", "overview", "senders"):
            assert (await anyone("GET", f"/v1/{path}")).verdict == (401, "no_credentials")


@virtual
async def test_another_body_under_a_key_is_told_of_its_sender() -> None:
    async with serving_to(ann="all") as callers:
        ann = callers["ann"]
        await send(ann, "q", "k")
        refused = await ann("POST", "/v1/inbox/q", {"body": 2, "key": "k"})
        assert refused.code == "key_reused"
        [sender] = (await ann.ok("GET", "/v1/senders"))["senders"]
        assert (sender["accepted"], sender["rejected"]) == (1, 1)


async def receivers(caller: Caller) -> list[Any]:
    attention = (await caller.ok("GET", "/v1/overview"))["attention"]
    return [one for one in attention if one["kind"] == "receiver"]


@virtual
async def test_a_paused_receiver_needs_attention_until_it_answers() -> None:
    apps, down = Apps(shared=False), True
    world = World(apps)
    url = "https://shop.example:443/hooks/secret-path"

    async def answer(post: Post) -> Answer:
        if down:
            raise Unreachable("shop.example refused the connection to port 443")
        return Answer(200, None, b"", 0.01)

    world.behaviour[url] = answer
    auth, keys = keyed(
        ann="timer:* endpoint:*", ben="timer:*", cas="timer:t1", eve="timer:* send:*", op="all"
    )
    async with serving(apps.make(outward=world.outward()), auth) as caller:
        ann, ben, cas, eve, op = (
            Caller(caller.server, keys[name]) for name in ("ann", "ben", "cas", "eve", "op")
        )
        assert await receivers(op) == []
        start_ms = apps.clock.now_ms()
        for one in (ann, ben, cas):
            timer = {"id": "t1", "url": url, "delay_ms": 1_000}
            await one.ok("POST", "/v1/timers", timer)
        await apps.sleep(30)
        [shown] = await receivers(ann)
        assert (shown["name"], shown["caller"]) == ("https://shop.example", "key:ann")
        assert shown["said"] == "shop.example refused the connection to port 443"
        assert shown["count"] >= 3
        assert start_ms + 1_000 <= shown["since_ms"] < start_ms + 2_000
        now_ms = apps.clock.now_ms()
        assert now_ms < shown["until_ms"]
        [seen] = await receivers(op)
        assert (seen["name"], seen["caller"]) == (shown["name"], "")
        assert seen["until_ms"] <= shown["until_ms"]
        assert len(await receivers(cas)) == 1
        assert await receivers(eve) == []
        posts = len(world.posts)
        await apps.sleep((seen["until_ms"] - now_ms) / 1_000 + 0.1)
        assert len(world.posts) > posts
        down = False
        await apps.sleep(1_200)
        assert await receivers(op) == []


@virtual
async def test_a_receiver_that_nobody_calls_any_more_is_not_paused() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    url = "https://shop.example/hook"

    async def refuse(post: Post) -> Answer:
        raise Unreachable("shop.example refused the connection to port 443")

    world.behaviour[url] = refuse
    async with serving(apps.make(outward=world.outward(attempts_max=2))) as caller:
        await caller.ok("POST", "/v1/timers", {"id": "t", "url": url, "delay_ms": 0})
        await apps.sleep(1)
        assert len(await receivers(caller)) == 1
        await apps.sleep(600)
        assert len(world.posts) == 2
        assert await receivers(caller) == []
