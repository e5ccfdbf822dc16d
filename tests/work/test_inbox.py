"""A message is taken in once for its key, and its duplicates hear what became of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.api.queues import DAY_MS
from onceward.errors import BadInput, KeyReused
from onceward.schedule import QueueSettings
from onceward.store.transaction import Transaction
from onceward.work.inbox import Inbox, Receipt, dedupe_key, derived_key, fingerprint
from onceward.work.job import send_arguments
from tests.schedule.jobs import Jobs, all_records, problems


class Letters(Jobs):
    """Jobs that come in through the inbox."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.schedule.settings = lambda queue: QueueSettings(**settings)
        self.inbox = Inbox(self.schedule)

    async def accept(self, body: Any = None, queue: str = "q", **options: Any) -> Receipt:
        async def accept(tx: Transaction) -> Receipt:
            return await self.inbox.accept(tx, queue, body, **send_arguments(self.store, options))

        return await self.store.run(accept)


async def letters(**settings: Any) -> Letters:
    found = Letters(**settings)
    await found.open()
    return found


async def test_a_message_becomes_one_job_however_often_it_comes() -> None:
    inbox = await letters()
    first = await inbox.accept({"n": 1}, key="a")
    assert (first.state, first.duplicate, first.key) == ("queued", False, "a")
    for _ in range(3):
        again = await inbox.accept({"n": 1}, key="a")
        assert (again.id, again.state, again.duplicate) == (first.id, "queued", True)
    assert len(await inbox.ready()) == 1
    assert problems(inbox.engine) == []


async def test_a_duplicate_sees_the_work_in_progress_and_then_its_result() -> None:
    inbox = await letters()
    first = await inbox.accept("x", key="a")
    claim = await inbox.claimed()
    assert (await inbox.accept("x", key="a")).state == "running"
    await inbox.store.run(
        lambda tx: inbox.schedule.complete(tx, claim.id, claim.token, {"score": 7})
    )
    again = await inbox.accept("x", key="a")
    assert (again.id, again.state, again.result) == (first.id, "succeeded", {"score": 7})


async def test_keys_are_apart_for_each_queue_and_each_caller() -> None:
    inbox = await letters()
    receipts = [
        await inbox.accept("x", key="a"),
        await inbox.accept("x", key="a", caller="ann"),
        await inbox.accept("x", key="a", caller="bob"),
        await inbox.accept("x", queue="r", key="a"),
    ]
    assert not any(receipt.duplicate for receipt in receipts)
    assert len({receipt.id for receipt in receipts}) == 4


async def test_another_body_under_a_known_key_is_refused_and_changes_nothing() -> None:
    inbox = await letters()
    first = await inbox.accept({"n": 1, "m": 2}, key="a")
    assert (await inbox.accept({"m": 2, "n": 1}, key="a")).duplicate, "the same JSON"
    with pytest.raises(KeyReused, match="another body") as refused:
        await inbox.accept({"n": 2, "m": 2}, key="a")
    assert refused.value.details["id"] == first.id
    assert refused.value.kind.status == 422
    assert len(await inbox.ready()) == 1


async def test_only_the_fields_that_the_queue_names_must_be_the_same() -> None:
    inbox = await letters(fingerprint=("order.id", "amount"))
    body = {"order": {"id": 1}, "amount": 5, "sent_at": "12:00"}
    await inbox.accept(body, key="a")
    assert (await inbox.accept({**body, "sent_at": "12:01"}, key="a")).duplicate
    with pytest.raises(KeyReused):
        await inbox.accept({**body, "amount": 6}, key="a")
    with pytest.raises(KeyReused):
        await inbox.accept({**body, "order": {}}, key="a")


async def test_a_queue_may_only_record_that_a_body_was_another() -> None:
    inbox = await letters(mismatch="record")
    first = await inbox.accept("x", key="a")
    again = await inbox.accept("y", key="a")
    assert (again.id, again.duplicate, again.same_body) == (first.id, True, False)
    assert (await inbox.accept("x", key="a")).same_body
    record = await inbox.store.run(lambda tx: tx.get(dedupe_key("q", "", "a")))
    assert record["differences"] == 1


async def test_a_recorded_difference_does_not_make_a_key_live_longer() -> None:
    inbox = await letters(mismatch="record", key_retention_ms=1_000)
    await inbox.accept("x", key="a")
    await inbox.complete(await inbox.claimed())
    await inbox.accept("y", key="a")
    await inbox.pass_ms(1_000)
    assert not (await inbox.accept("z", key="a")).duplicate


async def test_a_key_is_known_while_its_job_lives_and_for_its_retention_after_the_end() -> None:
    inbox = await letters(key_retention_ms=DAY_MS)
    first = await inbox.accept("x", key="a", due_ms=inbox.clock.at_ms + 30 * DAY_MS)
    await inbox.pass_ms(30 * DAY_MS)
    assert (await inbox.accept("x", key="a")).id == first.id, "it has not even begun"
    await inbox.complete(await inbox.claimed(lease_ms=DAY_MS))
    await inbox.pass_ms(DAY_MS - 1)
    assert (await inbox.accept("x", key="a")).id == first.id
    await inbox.pass_ms(1)
    assert (await inbox.accept("x", key="a")).id != first.id


async def test_a_key_kept_for_ever_outlives_its_job() -> None:
    inbox = await letters(key_retention_ms=None, job_retention_ms=1_000)
    first = await inbox.accept("x", key="a")
    await inbox.complete(await inbox.claimed())
    await inbox.pass_ms(50 * 366 * DAY_MS)
    again = await inbox.accept("x", key="a")
    assert (again.id, again.state, again.duplicate) == (first.id, "succeeded", True)
    assert problems(inbox.engine) == []


async def test_a_failed_job_keeps_its_key_until_it_is_redriven_and_done() -> None:
    inbox = await letters(key_retention_ms=1_000)
    first = await inbox.accept("x", key="a", attempts_max=1)
    await inbox.fail(await inbox.claimed(), None)
    await inbox.pass_ms(100 * DAY_MS)
    again = await inbox.accept("x", key="a")
    assert (again.id, again.state, again.reason) == (first.id, "failed", "why")
    await inbox.store.run(lambda tx: inbox.schedule.retry(tx, first.id))
    await inbox.complete(await inbox.claimed())
    await inbox.pass_ms(1_000)
    assert not (await inbox.accept("x", key="a")).duplicate


async def test_the_key_can_be_made_of_named_fields() -> None:
    inbox = await letters(key_fields=("from", "message.id"))
    body = {"from": "+49", "message": {"id": 7}}
    first = await inbox.accept(body)
    assert (await inbox.accept({**body})).id == first.id
    assert not (await inbox.accept({**body, "from": "+48"})).duplicate


@pytest.mark.parametrize("body", [{"from": "x"}, {"message": {}}, {"message": 1}, None, [], "text"])
async def test_a_message_without_the_fields_of_its_key_is_refused(body: Any) -> None:
    inbox = await letters(key_fields=("message.id",))
    with pytest.raises(BadInput, match=r"message\.id") as refused:
        await inbox.accept(body)
    assert refused.value.code == "missing_key"
    assert await inbox.ready() == []


async def test_messages_without_a_key_become_a_job_each() -> None:
    inbox = await letters()
    first, second = [await inbox.accept("x", caller="ann") for _ in range(2)]
    assert (first.key, first.state, first.duplicate) == ("", "queued", False)
    assert (second.key, second.duplicate, second.id != first.id) == ("", False, True)
    job = await inbox.get(first.id)
    assert (job.caller, job.dedupe) == ("app:ann", None)
    assert [key for key in all_records(inbox.engine) if key[0].startswith("inbox#")] == []
    assert problems(inbox.engine) == []


async def test_where_a_key_is_required_the_sender_is_told_what_to_do() -> None:
    inbox = await letters()
    with pytest.raises(BadInput, match="key_fields") as rejected:
        inbox.inbox.key_of("q", "x")
    assert rejected.value.code == "missing_key"
    with pytest.raises(BadInput, match="a queue name"):
        inbox.inbox.key_of("no such name", "x")


@pytest.mark.parametrize(
    "options",
    [
        {"key": ""},
        {"key": "a" * (limits.DEDUPE_KEY_BYTES_MAX + 1)},
        {"key": "\ud800"},
        {"key": 7},
        {"key": "a", "caller": 7},
        {"key": "a", "due_ms": 1.5},
        {"key": "a", "caller": "c" * (limits.CALLER_ID_BYTES_MAX + 1)},
        {"key": "a", "queue": "no such name"},
        {"key": "a", "priority": 99},
        {"key": "a", "order_key": ""},
    ],
)
async def test_bad_input_is_refused_and_nothing_is_accepted(options: dict[str, Any]) -> None:
    inbox = await letters()
    with pytest.raises(BadInput):
        await inbox.accept("x", **options)
    assert not inbox.engine.memory.table.count


@pytest.mark.parametrize("body", [float("nan"), {1, 2, object()}, {"a": float("inf")}])
async def test_a_body_that_is_not_json_is_refused(body: Any) -> None:
    inbox = await letters()
    with pytest.raises(BadInput):
        await inbox.accept(body, key="a")
    assert not inbox.engine.memory.table.count


async def test_whether_a_key_is_known_can_be_asked() -> None:
    inbox = await letters()
    assert await inbox.store.run(lambda tx: inbox.inbox.find(tx, "q", "a")) is None
    first = await inbox.accept("x", key="a")
    found = await inbox.store.run(lambda tx: inbox.inbox.find(tx, "q", "a"))
    assert found is not None
    assert (found.id, found.duplicate) == (first.id, True)


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=600)


@given(texts, texts, texts, texts)
def test_different_keys_have_different_records(a: str, b: str, c: str, d: str) -> None:
    same = (a, b) == (c, d)
    assert (dedupe_key("q", a[:200], b) == dedupe_key("q", c[:200], d)) == (
        same or (a[:200], b) == (c[:200], d)
    )
    assert len(dedupe_key("q", a[:200], b)[1].encode()) <= limits.SORT_BYTES_MAX


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), values, max_size=5))
def test_the_fingerprint_does_not_depend_on_the_order_of_members(body: dict[str, Any]) -> None:
    turned = dict(reversed(body.items()))
    assert fingerprint(body, None) == fingerprint(turned, None)
    assert fingerprint({**body, "and": 1}, None) != fingerprint({**body, "and": 2}, None)


@given(values, values)
def test_keys_made_of_fields_tell_their_values_apart(one: Any, other: Any) -> None:
    if None in (one, other) or "" in (one, other):
        return
    keys = [derived_key({"a": value, "b": 1}, ("a", "b"), "q") for value in (one, other)]
    assert (keys[0] == keys[1]) == (fingerprint(one, None) == fingerprint(other, None))
