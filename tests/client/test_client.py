"""Every call of the client against a server, and what each refuses."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from onceward import limits
from onceward.client import Client, Queue, Receipt
from onceward.errors import (
    AlreadyEnded,
    BadInput,
    JobFailed,
    KeyReused,
    LockHeld,
    LockLost,
    NoSuchJob,
    NotEnded,
    NotFailed,
    OncewardError,
    StaleToken,
)
from onceward.web.auth import ApiKey, Auth, digest_of
from tests.client.served import Served
from tests.needs import need

pydantic = need("pydantic")


@pytest.fixture
async def client(served: Served) -> AsyncIterator[Client]:
    async with Client(served.url, patience_s=5) as client:
        yield client


async def test_a_message_is_accepted_once_for_its_key(client: Client) -> None:
    first = await client.send("orders", {"item": "lamp"}, key="order-1")
    again = await client.send("orders", {"item": "lamp"}, key="order-1")
    assert (first.duplicate, again.duplicate) == (False, True)
    assert (again.id, again.key) == (first.id, "order-1")
    with pytest.raises(KeyReused):
        await client.send("orders", {"item": "sofa"}, key="order-1")


async def test_messages_with_a_batch_key_share_a_job(client: Client) -> None:
    options = {"batch_key": "ann", "batch_s": 600.0, "batch_size": 3}
    for number in (1, 2, 2, 3):
        receipt = await client.send("mails", number, key=f"m{number}", **options)
    [claim] = await client.jobs.claim("mails")
    assert (claim.id, claim.body) == (receipt.id, [1, 2, 3])
    for version in (1, 2):
        await client.send("index", version, key=f"v{version}", debounce_key="doc", debounce_s=0.0)
    found = await client.jobs.claim("index", max=2, wait_s=10)
    assert found[-1].body == 2


class Sum(msgspec.Struct):
    total: int


class Mail(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
    to: str


async def test_a_body_or_a_result_can_be_a_pydantic_model(client: Client) -> None:
    receipt = await client.send("mails", Mail(to="Ann"), key="k")
    assert (await client.send("mails", {"to": "Ann"}, key="k")).duplicate
    [claim] = await client.jobs.claim("mails")
    await client.jobs.complete(claim.id, claim.token, result=[Mail(to=claim.body["to"])])
    assert await client.jobs.result(receipt.id, list[Mail]) == [Mail(to="Ann")]


async def test_a_result_is_typed_or_an_error_with_the_reason(client: Client) -> None:
    queues = ("done", "failed", "waiting")
    done, failed, waiting = [(await client.send(queue, 1, key="k")).id for queue in queues]
    [claim] = await client.jobs.claim("done")
    await client.jobs.complete(done, claim.token, result={"total": 7})
    [claim] = await client.jobs.claim("failed")
    await client.jobs.fail(failed, claim.token, "too large", final=True, type="Big")
    assert await client.jobs.result(done) == {"total": 7}
    assert await client.jobs.result(done, Sum) == Sum(7)
    with pytest.raises(BadInput, match=r"result: expected array, got object"):
        await client.jobs.result(done, list[int])
    with pytest.raises(JobFailed, match="of 'failed' failed: too large") as error:
        await client.jobs.result(failed, timeout_s=20)
    assert (error.value.id, error.value.state, error.value.reason) == (
        failed,
        "failed",
        "too large",
    )
    assert error.value.type == "Big"
    with pytest.raises(NotEnded, match="it is queued"):
        await client.jobs.result(waiting, timeout_s=0)
    with pytest.raises(BadInput, match="cannot be converted"):
        await client.jobs.result(done, Client)


async def test_a_sender_can_wait_for_the_result(client: Client) -> None:
    sending = asyncio.create_task(client.send("sums", [1, 2], key="k", wait_s=30))
    [claim] = await client.jobs.claim("sums", wait_s=30)
    await client.jobs.complete(claim.id, claim.token, result=sum(claim.body))
    receipt = await sending
    assert (receipt.state, receipt.result) == ("succeeded", 3)
    assert (await client.send("sums", [1, 2], key="k")).result == 3


async def test_the_options_of_a_message_arrive(client: Client) -> None:
    later = await client.send("q", 1, key="later", delay_s=60)
    keyed = await client.send("q", 2, key="keyed", order_key="o", priority=1, attempts_max=3)
    assert (await client.jobs.get(later.id)).state == "scheduled"
    job = await client.jobs.get(keyed.id)
    assert (job.order_key, job.priority, job.attempts_max, job.key) == ("o", 1, 3, "keyed")


async def test_many_messages_get_a_verdict_each(client: Client) -> None:
    messages = [{"body": n, "key": f"k{n % 2}"} for n in (0, 1, 0, 3)]
    first, second, again, other = await client.send_many("q", messages)
    assert isinstance(first, Receipt)
    assert isinstance(second, Receipt)
    assert isinstance(again, Receipt)
    assert (again.id, again.duplicate) == (first.id, True)
    assert isinstance(other, KeyReused)
    assert await client.send_many("q", []) == []


async def test_a_job_is_claimed_extended_and_completed(client: Client) -> None:
    assert await client.jobs.claim("q") == []
    for n in range(3):
        await client.send("q", {"n": n}, key=str(n))
    claims = await client.jobs.claim("q", max=2, lease_s=60, worker="w1")
    assert [claim.attempt for claim in claims] == [1, 1]
    claim = claims[0]
    assert await client.jobs.extend(claim.id, claim.token, 120) > claim.lease_until_ms
    assert (await client.jobs.get(claim.id)).worker == "w1"
    await client.jobs.complete(claim.id, claim.token, result={"fine": True})
    job = await client.jobs.wait(claim.id)
    assert (job.state, job.result, job.ended) == ("succeeded", {"fine": True}, True)
    with pytest.raises(StaleToken):
        await client.jobs.extend(claim.id, claim.token, 1)
    with pytest.raises(StaleToken):
        await client.jobs.fail(claim.id, claim.token, "late")


async def test_an_attempt_fails_for_a_while_or_for_good(client: Client) -> None:
    receipt = await client.send("q", 1, key="k")
    [claim] = await client.jobs.claim("q")
    failed = await client.jobs.fail(claim.id, claim.token, "not yet", retry_after_s=0)
    assert failed.state in ("retrying", "queued")
    [claim] = await client.jobs.claim("q", wait_s=30)
    assert (claim.attempt, claim.reason) == (2, "not yet")
    assert (await client.jobs.fail(claim.id, claim.token, "broken", final=True)).state == "failed"
    job = await client.jobs.get(receipt.id)
    assert [past.reason for past in job.history] == ["not yet", "broken"]
    page = await client.queues.failed("q")
    [dead], more = page.jobs, page.next
    assert (dead.id, more) == (receipt.id, None)
    with pytest.raises(NotFailed):
        await client.jobs.settle(receipt.id, "pay", done=True)
    await client.jobs.retry(receipt.id)
    with pytest.raises(NotFailed):
        await client.jobs.retry(receipt.id)
    assert (await client.queues.failed("q")).jobs == []


async def test_a_job_that_has_not_ended_is_shown_as_it_is_in_time(client: Client) -> None:
    receipt = await client.send("q", 1, key="k")
    assert (await client.jobs.wait(receipt.id, timeout_s=0.01)).state == "queued"
    assert (await client.jobs.wait(receipt.id, timeout_s=0)).state == "queued"


async def test_a_job_that_is_done_cannot_be_cancelled(client: Client) -> None:
    first = await client.send("q", 1, key="first")
    for _ in range(2):
        await client.jobs.cancel(first.id)
    assert (await client.jobs.wait(first.id)).state == "cancelled"
    await client.send("q", 2, key="second")
    [claim] = await client.jobs.claim("q")
    await client.jobs.complete(claim.id, claim.token)
    with pytest.raises(AlreadyEnded):
        await client.jobs.cancel(claim.id)


async def test_queues_are_set_paused_and_resumed(client: Client) -> None:
    queue = await client.queues.configure("q", attempts_max=2, key_fields=["from"])
    assert queue.settings.attempts_max == 2
    assert (await client.queues.pause("q")).settings.paused is True
    receipt = await client.send("q", {"from": "Ann"})
    assert await client.jobs.claim("q") == []
    assert not (await client.queues.resume("q")).settings.paused
    [claim] = await client.jobs.claim("q", wait_s=30)
    assert claim.id == receipt.id
    assert (await client.queues.get("q")).settings == queue.settings
    assert [queue.name for queue in await client.queues.list()] == ["q"]


async def test_queues_say_how_many_jobs_they_have(client: Client, served: Served) -> None:
    await client.send("q", 1, key="k")
    await served.server.counts.count()
    [queue] = await client.queues.list()
    assert isinstance(queue, Queue)
    assert queue.jobs == {"queued": 1}
    assert queue.oldest_queued_ms is not None


async def test_failed_jobs_come_in_pages_and_are_redriven_by_reason(client: Client) -> None:
    for n in range(5):
        await client.send("q", n, key=str(n))
    for claim in await client.jobs.claim("q", max=5):
        await client.jobs.fail(claim.id, claim.token, f"reason {claim.body % 2}", final=True)
    page = await client.queues.failed("q", limit=3)
    some, more = page.jobs, page.next
    assert more is not None
    page = await client.queues.failed("q", after=more or "", limit=3)
    rest, end = page.jobs, page.next
    assert (len(some), len(rest), end) == (3, 2, None)
    told: list[int] = []
    redriven = await client.queues.redrive_all("q", reason="reason 1", progress=told.append)
    assert redriven.jobs == 2
    assert told[-1] == 2
    assert (await client.queues.redrive_all("q")).jobs == 3
    assert (await client.queues.purge_all("q", progress=told.append)).jobs == 5
    assert told[-1] == 5
    assert await client.jobs.claim("q") == []


async def test_long_work_is_done_in_several_requests(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PAGE_MS", 0)
    messages = [{"body": n, "key": str(n)} for n in range(300)]
    await client.send_many("q", messages)
    told: list[int] = []
    assert (await client.queues.purge_all("q", progress=told.append)).jobs == 300
    assert len(told) > 1
    assert sorted(told) == told


async def test_locks_are_acquired_renewed_and_released(client: Client) -> None:
    lock = await client.locks.acquire(["a", "b"], owner="me", lease_s=60)
    assert lock.token == lock.tokens["a"] == lock.tokens["b"] == 1
    with pytest.raises(LockHeld):
        await client.locks.acquire(["b", "c"])
    status = await client.locks.get("a")
    assert ([one.owner for one in status.holders], status.held, status.capacity) == (["me"], 1, 1)
    assert await client.locks.renew(lock.id, lease_s=120) > lock.lease_until_ms
    assert await client.locks.renew(lock.id) > lock.lease_until_ms
    assert await client.locks.release(lock.id)
    assert not await client.locks.release(lock.id)
    with pytest.raises(LockLost):
        await client.locks.renew(lock.id)
    assert (await client.locks.acquire(["a"], capacity=1)).token == 2


async def test_who_waits_for_a_lock_gets_it_next(client: Client, served: Served) -> None:
    first = await client.locks.acquire(["a"])
    waiting = asyncio.create_task(client.locks.acquire(["a"], wait_s=30, owner="next"))
    while not (await client.locks.get("a")).waiting:
        pass
    assert [one.owner for one in (await client.locks.get("a")).waiters] == ["next"]
    await client.locks.release(first.id)
    assert (await waiting).token == 2


async def test_names_may_have_any_characters(client: Client) -> None:
    for name in ("a/b", "ä ö?x=1#y", "%2F", "a+b&c;d", "...", "日本"):
        await client.locks.acquire([name])
        assert (await client.locks.get(name)).name == name


async def test_a_client_shows_its_key(served: Served) -> None:
    key = "ow_" + 64 * "0"
    auth = Auth([ApiKey("shop", digest_of(key), ("send:orders",))])
    async with (
        Served(auth=auth) as locked,
        Client(locked.url, key=key) as client,
        Client(locked.url) as stranger,
        Client(locked.url, key="ow_" + 64 * "1") as liar,
    ):
        receipt = await client.send("orders", 1, key="k")
        assert (await client.jobs.get(receipt.id)).state == "queued"
        with pytest.raises(OncewardError, match=r"\[not_allowed\]"):
            await client.jobs.claim("orders")
        for other in (stranger, liar):
            with pytest.raises(BadInput, match=r"\[no_credentials\]"):
                await other.send("orders", 1, key="k")


async def test_a_job_that_is_not_there_says_which(client: Client) -> None:
    with pytest.raises(NoSuchJob) as raised:
        await client.jobs.get("01ABC")
    assert raised.value.details == {"id": "01ABC"}
