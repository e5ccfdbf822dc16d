"""The list of jobs of an application, for operators."""

import pytest

from onceward.app import App
from onceward.errors import BadInput


async def test_jobs_are_listed_by_queue_state_and_text_in_pages() -> None:
    async with App("memory://", slots=4) as app:
        sent = [
            (await app.send(queue, number, key=f"key {number}", order_key="line")).id
            for number, queue in enumerate(["a", "b", "a", "b", "a"])
        ]
        await app.cancel(sent[0])
        seen: list[str] = []
        after: str | None = ""
        while after is not None:
            page = await app.queues.jobs(after=after, limit=2)
            assert len(page.jobs) <= 2
            seen += [one.id for one in page.jobs]
            after = page.next
        assert sorted(seen) == sorted(sent)
        assert seen[-1] == sent[0], "the newest first"
        found = await app.queues.jobs(queue="a")
        assert {one.id for one in found.jobs} == {sent[0], sent[2], sent[4]}
        [cancelled] = (await app.queues.jobs(state="cancelled")).jobs
        assert (cancelled.id, cancelled.queue, cancelled.key) == (sent[0], "a", "key 0")
        assert [one.id for one in (await app.queues.jobs(text="key 3")).jobs] == [sent[3]]
        assert (await app.queues.jobs(queue="none")).jobs == []


@pytest.mark.parametrize(
    "wrong", [{"state": "odd"}, {"queue": 3}, {"limit": 0}, {"limit": 10**6}, {"text": 5}], ids=str
)
async def test_what_selects_no_jobs_is_refused(wrong: dict[str, object]) -> None:
    async with App("memory://", slots=4) as app:
        with pytest.raises(BadInput, match="does not select jobs"):
            await app.queues.jobs(**wrong)  # type: ignore[arg-type]
