"""Outward calls are made until they are answered, under one id, and delay nobody else."""

import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from onceward import limits
from onceward.api.retries import RetryPolicy
from onceward.api.timers import METHODS
from onceward.app import App
from onceward.errors import AddressRefused, BadInput, Unreachable
from onceward.server_key import ServerKeys
from onceward.store.transaction import Transaction
from onceward.testing.clock import VirtualClock, run_virtual
from onceward.webhooks import endpoints
from onceward.webhooks.answers import Answer
from onceward.webhooks.delivery import Outward
from onceward.webhooks.timers import WEBHOOKS, firings
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

URL = "https://example.com/hook"
SECRET = "whsec_" + "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


class Post:
    """One attempt, as the world saw it."""

    def __init__(
        self, at_ms: int, url: str, headers: Mapping[str, str], body: bytes, method: str = "POST"
    ) -> None:
        self.at_ms = at_ms
        self.url = url
        self.headers = dict(headers)
        self.body = body
        self.method = method
        self.timeout_s = 0.0

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


Behaviour = Callable[[Post], Awaitable[Answer]]


class World:
    """What answers instead of the network."""

    def __init__(self, apps: Apps) -> None:
        self.apps = apps
        self.posts: list[Post] = []
        self.behaviour: dict[str, Behaviour] = {}
        self.under_way = 0

    def outward(self, **options: Any) -> Outward:
        return Outward(sender=lambda guard: self, **options)  # type: ignore[arg-type, return-value]

    async def send(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        method: str,
        connect_s: float,
        total_s: float,
    ) -> Answer:
        post = Post(self.apps.clock.now_ms(), url, headers, body, method)
        post.timeout_s = total_s
        self.posts.append(post)
        self.under_way += 1
        try:
            return await self.behaviour.get(url, answering(200))(post)
        finally:
            self.under_way -= 1

    async def close(self) -> None:
        pass

    def of(self, url: str) -> list[Post]:
        return [post for post in self.posts if post.url == url]


def answering(*statuses: int, retry_after_s: float | None = None) -> Behaviour:
    """These statuses one after the other, the last one for ever."""
    left = list(statuses)

    async def answer(post: Post) -> Answer:
        status = left.pop(0) if len(left) > 1 else left[0]
        return Answer(status, retry_after_s if status != 200 else None, b"said", 0.01)

    return answer


def hanging(seconds: float) -> Behaviour:
    async def hang(post: Post) -> Answer:
        await VirtualClock().sleep(seconds)
        raise Unreachable(f"no answer within {seconds} s")

    return hang


async def status(app: App, id_: str) -> str:
    return (await app.timers.get(id_)).status


@virtual
async def test_a_timer_calls_its_url_at_its_time_and_is_done_when_that_answers() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    async with apps.make(outward=world.outward()) as app:
        start_ms = apps.clock.now_ms()
        headers = {"x-own": "1"}
        await app.timers.set("t", url=URL, body={"a": 1}, headers=headers, delay_s=5)
        await apps.sleep(4.9)
        assert world.posts == []
        await apps.sleep(1)
        [post] = world.posts
        assert (post.at_ms - start_ms, post.url, post.body) == (5_000, URL, b'{"a":1}')
        assert post.headers["x-own"] == "1"
        assert post.headers["onceward-timer"] == "t"
        assert post.headers["content-type"] == "application/json"
        assert await status(app, "t") == "success"
        await apps.sleep(60)
    assert len(world.posts) == 1
    assert apps.problems == []


@virtual
async def test_calls_wait_while_their_secrets_cannot_be_read() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    async with apps.make(outward=world.outward(attempts_max=2)) as app:
        await app.store.run(lambda tx: endpoints.put(tx, "e", URL, SECRET, headers={"x-own": "1"}))
        await app.timers.set("a", endpoint="e", delay_s=60)
        await app.timers.set("b", endpoint="e", headers={"x-own": "2"}, delay_s=60)
        right = app.store.server_keys
        app.store.server_keys = ServerKeys([b"x" * 32])  # as after a restore without its key
        await apps.sleep(600)
        assert world.posts == []
        views = [await app.timers.get(id_) for id_ in ("a", "b")]
        assert [view.status for view in views] == ["firing", "firing"]
        app.store.server_keys = right
        await apps.sleep(limits.SUSPENDED_MS / 1_000 + 2)
        assert sorted(post.headers["x-own"] for post in world.posts) == ["1", "2"]
        assert [await status(app, id_) for id_ in ("a", "b")] == ["success", "success"]


@virtual
async def test_failures_are_tried_again_under_the_same_id_until_one_succeeds() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    world.behaviour[URL] = answering(500, 302, 404, 200)
    async with apps.make(outward=world.outward()) as app:
        await app.timers.set("t", url=URL, delay_s=0)
        await apps.sleep(600)
        assert len(world.posts) == 4
        assert len({post.id for post in world.posts}) == 1
        pauses = [b.at_ms - a.at_ms for a, b in zip(world.posts, world.posts[1:], strict=False)]
        assert pauses == sorted(pauses)
        view = await app.timers.get("t")
        assert view.status == "success"
        assert view.job is not None
        assert [attempt.reason[:3] for attempt in view.job.history] == ["500", "302", "404"]
        assert view.job.result == {"said": "200 OK in 10 ms: said"}


@virtual
async def test_a_receiver_that_is_replaced_for_two_minutes_misses_no_call() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    up_ms = apps.clock.now_ms() + 150_000

    async def replaced(post: Post) -> Answer:
        if post.at_ms < up_ms:
            raise Unreachable("example.com refused the connection to port 443")
        return Answer(200, None, b"", 0.01)

    world.behaviour[URL] = replaced
    async with apps.make(outward=world.outward()) as app:
        for at_s in range(30, 150, 10):
            await app.timers.set(f"t{at_s}", url=URL, delay_s=at_s)
        await apps.sleep(900)
        views = await app.timers.find(prefix="t")
        assert {view.status for view in views} == {"success"}


def test_a_call_is_attempted_for_about_a_day_by_default() -> None:
    async def main() -> None:
        apps = Apps(shared=False)
        world = World(apps)
        world.behaviour[URL] = answering(503)
        async with apps.make(outward=world.outward()) as app:
            await app.timers.set("t", url=URL, delay_s=0)
            await apps.sleep(24 * 3_600)
            assert (len(world.posts), await status(app, "t")) == (9, "failed")
            took_h = (world.posts[-1].at_ms - world.posts[0].at_ms) / 3_600_000
            assert 14 < took_h < 22

    run_virtual(main())


@virtual
async def test_a_timer_has_its_own_retry_policy_before_that_of_its_endpoint() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    world.behaviour[URL] = answering(503)
    async with apps.make(outward=world.outward()) as app:
        retry = RetryPolicy((1_000,), timeout_ms=2_000)
        await app.store.run(lambda tx: endpoints.put(tx, "e", URL, SECRET, retry=retry))
        await app.timers.set("plain", endpoint="e", delay_s=0)
        await apps.sleep(60)
        assert [post.timeout_s for post in world.posts] == [2.0, 2.0]
        assert await status(app, "plain") == "failed"
        world.posts.clear()
        own = {"pauses_s": [1, 10], "timeout_s": 7}
        await app.timers.set("own", endpoint="e", delay_s=0, retry=own)
        await apps.sleep(60)
        assert [post.timeout_s for post in world.posts] == [7.0, 7.0, 7.0]
        pauses = [b.at_ms - a.at_ms for a, b in zip(world.posts, world.posts[1:], strict=False)]
        assert 800 <= pauses[0] <= 1_300
        assert 8_000 <= pauses[1] <= 12_100
        world.posts.clear()
        await app.timers.set("never", endpoint="e", delay_s=0, retry={"attempts_max": 1})
        await apps.sleep(60)
        assert len(world.posts) == 1
        with pytest.raises(BadInput, match="given twice"):
            await app.timers.set("t", url=URL, delay_s=0, attempts_max=1, retry={"attempts_max": 1})
        with pytest.raises(BadInput, match="on_failure are only for timers that call"):
            await app.timers.set("t", queue="q", delay_s=0, retry=own)


@virtual
async def test_after_the_last_attempt_it_has_failed_and_can_be_sent_again() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    world.behaviour[URL] = answering(503, 503, 503, 200)
    async with apps.make(outward=world.outward(attempts_max=3)) as app:
        await app.timers.set("t", url=URL, delay_s=0)
        await apps.sleep(600)
        assert (len(world.posts), await status(app, "t")) == (3, "failed")
        view = await app.timers.get("t")
        await app.queues.retry(view.timer.job)
        await apps.sleep(10)
        assert (len(world.posts), await status(app, "t")) == (4, "success")
        assert len({post.id for post in world.posts}) == 1


@virtual
async def test_gone_ends_it_at_once_and_one_that_repeats_for_good() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    world.behaviour[URL] = answering(410)
    async with apps.make(outward=world.outward()) as app:
        await app.timers.set("once", url=URL, delay_s=0)
        await app.timers.set("often", url=URL, every_s=60, delay_s=0)
        await apps.sleep(600)
        assert len(world.posts) == 2
        assert await status(app, "once") == "failed"
        assert await status(app, "often") == "cancelled"


@virtual
async def test_who_asks_for_a_pause_gets_it() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    world.behaviour[URL] = answering(429, 200, retry_after_s=77.0)
    async with apps.make(outward=world.outward()) as app:
        await app.timers.set("t", url=URL, delay_s=0)
        await apps.sleep(76.9)
        assert len(world.posts) == 1
        await apps.sleep(1)
        assert len(world.posts) == 2


@virtual
async def test_who_asks_for_no_pause_is_not_called_until_all_attempts_are_used_up() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    world.behaviour[URL] = answering(*[503] * 20, retry_after_s=0.0)
    async with apps.make(outward=world.outward()) as app:
        await app.timers.set("t", url=URL, delay_s=0)
        await apps.sleep(30)
        assert len(world.posts) < 8
        assert await status(app, "t") == "firing"


@virtual
async def test_calls_are_signed_with_the_secrets_of_their_endpoint() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    async with apps.make(outward=world.outward()) as app:
        await app.store.run(lambda tx: endpoints.put(tx, "e", URL, SECRET, headers={"x-e": "1"}))
        await app.timers.set(endpoint="e", body={"n": 1}, delay_s=0)
        await app.timers.set(url="https://example.com/bare", body={"n": 2}, delay_s=0)
        await apps.sleep(5)
        [post] = world.of(URL)
        assert post.headers["x-e"] == "1"
        at = datetime.fromtimestamp(int(post.headers["webhook-timestamp"]), UTC)
        signed = Webhook(SECRET).sign(post.id, at, post.body.decode())
        assert post.headers["webhook-signature"] == signed
        [bare] = world.of("https://example.com/bare")
        default = await app.store.run(lambda tx: endpoints.get(tx, endpoints.DEFAULT))
        assert default.url == ""
        assert bare.headers["webhook-signature"].startswith("v1,")
        assert bare.headers["webhook-signature"] != post.headers["webhook-signature"]


@virtual
async def test_health_is_noted_when_an_endpoint_begins_to_fail_and_to_answer_again() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    world.behaviour[URL] = answering(500, 500, 200)
    async with apps.make(outward=world.outward()) as app:
        await app.store.run(lambda tx: endpoints.put(tx, "e", URL, SECRET))
        await app.timers.set(endpoint="e", delay_s=0)
        await apps.sleep(1)
        health = (await app.store.run(lambda tx: endpoints.get(tx, "e"))).health
        assert health.failing
        assert health.said.startswith("500")
        await apps.sleep(600)
        assert not (await app.store.run(lambda tx: endpoints.get(tx, "e"))).health.failing


@virtual
async def test_an_endpoint_that_is_disabled_or_gone_is_not_called() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    async with apps.make(outward=world.outward()) as app:
        await app.store.run(lambda tx: endpoints.put(tx, "e", URL, SECRET, disabled=True))
        await app.timers.set("disabled", endpoint="e", delay_s=0)
        await app.timers.set("unknown", endpoint="f", delay_s=0)
        await apps.sleep(5)
        assert world.posts == []
        assert await status(app, "disabled") == "failed"
        assert await status(app, "unknown") == "failed"


@virtual
async def test_the_id_comes_behind_the_path_where_that_is_asked_for() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    async with apps.make(outward=world.outward()) as app:
        await app.timers.set("a b/c", url="https://example.com/h/?q=1", append_id=True, delay_s=0)
        await apps.sleep(1)
        [post] = world.posts
        assert post.url == "https://example.com/h/a%20b%2Fc?q=1"
        body = json.loads(post.body)
        assert (body["id"], body["number"]) == ("a b/c", 1)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/", "http://[::1]/", "http://0x7f.1/", "https://example.com:22/"]
)
@virtual
async def test_a_url_that_may_not_be_called_is_refused_when_the_timer_is_set(url: str) -> None:
    apps = Apps(shared=False)
    world = World(apps)
    async with apps.make(outward=world.outward()) as app:
        with pytest.raises(AddressRefused):
            await app.timers.set(url=url, delay_s=0)
        with pytest.raises(BadInput):
            await app.timers.set(url="ftp://example.com", delay_s=0)
        assert await app.timers.find() == []
    async with apps.make(outward=world.outward(allow=["127.0.0.0/8:*"])) as app:
        await app.timers.set(url="http://127.0.0.1:8080/", delay_s=0)
        await apps.sleep(1)
    assert len(world.posts) == 1


@virtual
async def test_a_url_stored_before_the_rules_changed_fails_when_it_is_due() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    async with apps.make() as app:  # without rules of its own
        await app.timers.set("t", url="http://127.0.0.1/", delay_s=0)
        await apps.sleep(5)
        assert await status(app, "t") == "firing", "nobody here makes calls"
    async with apps.make(outward=world.outward()) as app:
        await apps.sleep(5)
        assert await status(app, "t") == "failed"
    assert world.posts == []


@virtual
async def test_hosts_that_hang_delay_no_other() -> None:
    """Nine of ten hang for as long as they may; what the others get is not a second late."""
    apps = Apps(shared=False)
    world = World(apps)
    urls = [f"https://h{n}.example.com/" for n in range(100)]
    for n, url in enumerate(urls):
        if n % 10:
            world.behaviour[url] = hanging(limits.OUTWARD_TOTAL_S)
    async with apps.make(outward=world.outward(concurrency=200)) as app:
        start_ms = apps.clock.now_ms()
        for n in range(500):
            due_ms = start_ms + 10_000 + 20 * n
            await app.timers.set(f"{n:04}", url=urls[n % 100], body=due_ms, at_ms=due_ms)
        await apps.sleep(10 + 10 + 2)
        healthy = [post for url in urls[::10] for post in world.of(url)]
        assert len(healthy) == 50
        assert len({post.id for post in healthy}) == 50
        assert max(post.at_ms - int(post.body) for post in healthy) < 1_000


@virtual
async def test_a_slow_host_gets_all_its_calls_and_no_more_at_once_than_it_may() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    most = 0

    async def slowly(post: Post) -> Answer:
        nonlocal most
        most = max(most, world.under_way)
        await apps.sleep(0.5)
        return Answer(200, None, b"", 0.5)

    world.behaviour[URL] = slowly
    async with apps.make(outward=world.outward(concurrency_per_host=40)) as app:
        for n in range(500):
            await app.timers.set(f"{n}", url=URL, delay_s=1)
        await apps.sleep(60)
        assert len(world.posts) == 500
        assert len({post.id for post in world.posts}) == 500
        assert most == 40
        commits = len(apps.commits)
        assert commits < 500 * 10, "they do not come back again and again"


@virtual
async def test_calls_are_begun_at_the_rate_that_was_asked_for_in_the_order_they_were_due() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    async with apps.make() as app:
        start_ms = apps.clock.now_ms()
        for n in range(300):
            at_ms = start_ms + 1_000 + (n * 7) % 300
            await app.timers.set(f"{n}", url=URL, body=at_ms, at_ms=at_ms)
    await apps.sleep(60)  # nobody runs meanwhile
    async with apps.make(outward=world.outward(rate=20.0)):
        begun_ms = apps.clock.now_ms()
        await apps.sleep(30)
    assert len(world.posts) == 300
    took_s = (world.posts[-1].at_ms - begun_ms) / 1_000
    assert 14 < took_s < 16
    due = [int(post.body) for post in world.posts]
    late = [max(due[: n + 1]) - time for n, time in enumerate(due)]
    assert max(late) <= 100, "in order, but for what one commit of each slot holds"


@virtual
async def test_a_call_that_was_cut_off_is_made_again_under_the_same_id_and_no_other_is() -> None:
    apps = Apps(shared=True)
    world = World(apps)
    world.behaviour[URL] = hanging(1e9)
    one = apps.make(outward=world.outward())
    process = await apps.start(one)
    for n in range(5):
        await one.timers.set(f"ok{n}", url="https://example.com/ok", delay_s=0)
    await one.timers.set("cut", url=URL, delay_s=0)
    while len(world.posts) < 6:
        await apps.sleep(0.1)
    await apps.sleep(1)
    process.kill()
    world.behaviour[URL] = answering(200)
    async with apps.make(outward=world.outward()) as app:
        await apps.sleep(120)
        assert await status(app, "cut") == "success"
        assert len(world.of("https://example.com/ok")) == 5
        cut = world.of(URL)
        assert len(cut) == 2
        assert len({post.id for post in cut}) == 1


@virtual
async def test_settings_of_the_queue_of_calls_are_those_of_the_application() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    async with apps.make(outward=world.outward(rate=5.0, attempts_max=2)) as app:
        settings = app.node.queue_settings(WEBHOOKS)
        assert (settings.rate, settings.attempts_max) == (5.0, 0)
    with pytest.raises(BadInput):
        async with apps.make(outward=Outward(allow=["nonsense/99"])):
            pass


@virtual
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_change_of_an_endpoint_holds_for_the_next_call(elsewhere: bool) -> None:
    """Also if another node makes the call, and has made one just before."""
    apps = Apps(shared=True)
    world = World(apps)
    moved, rotated = "https://example.org/moved", "whsec_" + 43 * "B" + "="
    async with apps.make(outward=world.outward()) as app, apps.make() as other:
        changing = other if elsewhere else app

        async def call() -> Post:
            before = len(world.posts)
            await app.timers.set(endpoint="e", body={"n": 1}, delay_s=0)
            while len(world.posts) == before:
                await apps.sleep(0.01)
            return world.posts[-1]

        async def change(**changes: Any) -> None:
            url = changes.pop("url", moved)
            await changing.store.run(lambda tx: endpoints.put(tx, "e", url, SECRET, **changes))

        await change(url=URL)
        assert (await call()).url == URL
        await change()
        assert (await call()).url == moved
        await changing.store.run(lambda tx: endpoints.rotate(tx, "e", rotated, overlap_ms=0))
        post = await call()
        at = datetime.fromtimestamp(int(post.headers["webhook-timestamp"]), UTC)
        signed = Webhook(rotated).sign(post.id, at, post.body.decode())
        assert post.headers["webhook-signature"] == signed
        await change(disabled=True)
        before = len(world.posts)
        await app.timers.set("last", endpoint="e", delay_s=0)
        while await status(app, "last") != "failed":
            await apps.sleep(0.01)
        assert len(world.posts) == before


@virtual
async def test_text_with_its_own_content_type_is_sent_as_it_is_and_signed() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    async with apps.make(outward=world.outward()) as app:
        await app.store.run(lambda tx: endpoints.put(tx, "e", URL, SECRET))
        for kind, body in (
            ("text/plain; charset=utf-8", 'h\u00e9 "there"'),
            ("application/xml", "<a/>"),
            ("application/json", "text"),
            ("application/cloudevents+json", "text"),
            ("text/plain", {"a": 1}),
        ):
            headers = {"Content-Type": kind}
            await app.timers.set(None, endpoint="e", body=body, headers=headers, delay_s=0)
            await apps.sleep(1)
        bodies = [post.body.decode() for post in world.posts]
        assert bodies == ['h\u00e9 "there"', "<a/>", '"text"', '"text"', '{"a":1}']
        for post in world.posts:
            signed = post.headers["webhook-signature"]
            at = datetime.fromtimestamp(int(post.headers["webhook-timestamp"]), UTC)
            assert Webhook(SECRET).sign(post.id, at, post.body.decode()) == signed


@virtual
async def test_a_receiver_that_is_back_gets_calls_within_two_seconds() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    back_ms = apps.clock.now_ms() + 300_000

    async def down(post: Post) -> Answer:
        if post.at_ms < back_ms:
            raise Unreachable("example.com refused the connection to port 443")
        return Answer(200, None, b"", 0.01)

    world.behaviour[URL] = down
    async with apps.make(outward=world.outward()) as app:
        for n in range(0, 600, 2):
            await app.timers.set(f"{n:03}", url=URL, delay_s=n)
        await apps.sleep(299)
        assert app.delivery is not None
        pause = app.delivery.pause_of("", "", URL)
        assert pause is not None
        assert pause.failures > 10
        assert pause.until_ms - apps.clock.now_ms() <= 2_000
        assert app.delivery.pause_of("", "", "https://other.example.com/") is None
        await apps.sleep(4)
        first_ms = min(post.at_ms for post in world.posts if post.at_ms >= back_ms)
        assert first_ms - back_ms <= 2_000
        assert app.delivery.pause_of("", "", URL) is None
        fresh = [post for post in world.posts if post.headers["onceward-timer"] == "302"]
        assert len(fresh) == 1


async def default_endpoint(app: App) -> endpoints.Endpoint:
    return await app.store.run(lambda tx: endpoints.get(tx, endpoints.DEFAULT))


@virtual
async def test_a_call_has_the_method_of_its_timer_and_a_body_where_that_has_one() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    async with apps.make(outward=world.outward()) as app:
        for method in METHODS:
            await app.timers.set(method, url=URL, method=method, delay_s=0)
        await app.timers.set("body", url=URL, method="DELETE", body=[1], delay_s=0)
        await apps.sleep(1)
        posts = {post.headers["onceward-timer"]: post for post in world.posts}
        assert {post.method for post in world.posts} == set(METHODS)
        for id_, post in posts.items():
            bare = id_ in ("GET", "DELETE")
            assert (post.body == b"", "content-type" not in post.headers) == (bare, bare)
            signer = Webhook((await default_endpoint(app)).secrets[0].text)
            at = datetime.fromtimestamp(int(post.headers["webhook-timestamp"]), UTC)
            signed = signer.sign(post.id, at, post.body.decode())
            assert post.headers["webhook-signature"] == signed
        assert posts["body"].body == b"[1]"


@virtual
async def test_a_call_that_fails_for_good_is_reported_to_an_endpoint() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    world.behaviour[URL] = answering(503)
    async with apps.make(outward=world.outward()) as app:
        await app.store.run(lambda tx: endpoints.put(tx, "ops", f"{URL}/ops", SECRET))
        retry, on_failure = {"pauses_s": [1]}, {"endpoint": "ops"}
        await app.timers.set("t", url=URL, delay_s=0, retry=retry, on_failure=on_failure)
        await apps.sleep(60)
        [report] = world.of(f"{URL}/ops")
        message = json.loads(report.body)
        assert (message["type"], message["timer"], message["attempts"]) == ("call.failed", "t", 2)
        assert message["id"] == world.of(URL)[0].id != report.id
        with pytest.raises(BadInput, match="on_failure must have"):
            await app.timers.set("u", url=URL, delay_s=0, on_failure={"mail": "ann"})


@virtual
async def test_calls_wait_for_a_disabled_endpoint_whose_policy_is_to_wait() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    async with apps.make(outward=world.outward(attempts_max=1)) as app:

        async def put(*, disabled: bool) -> None:
            await app.store.run(
                lambda tx: endpoints.put(tx, "e", URL, SECRET, disabled=disabled, waits=True)
            )

        await put(disabled=True)
        await app.timers.set("t", endpoint="e", delay_s=0)
        await apps.sleep(600)
        assert (world.posts, await status(app, "t")) == ([], "firing")
        await put(disabled=False)
        await apps.sleep(limits.DISABLED_MS / 1_000 + 2)
        assert (len(world.posts), await status(app, "t")) == (1, "success")


@virtual
async def test_a_success_that_is_sent_again_has_the_same_id_and_a_new_signature() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    async with apps.make(outward=world.outward()) as app:
        await app.store.run(lambda tx: endpoints.put(tx, "e", URL, SECRET))
        await app.timers.set("t", endpoint="e", delay_s=0, body=7)
        await apps.sleep(60)

        async def resend(tx: Transaction) -> None:
            [found] = await firings.of_endpoint(tx, "", "e", most=9)
            await app.timers.part.resend(tx, "", found, by="")

        await app.store.run(resend)
        await apps.sleep(60)
        first, second = world.posts
        assert first.id == second.id
        assert first.body == second.body == b"7"
        assert first.headers["webhook-signature"] != second.headers["webhook-signature"]
        assert apps.problems == []
