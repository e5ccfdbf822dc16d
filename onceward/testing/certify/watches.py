"""Checks of `wait`: wake-up by a change, and timeout without one."""

import asyncio

from onceward.engine.base import Delete, Put, Write
from onceward.testing.certify.lab import Lab, NotApplicable, abandon, holds, same

# Long enough for a slow database; a correct engine always gives a hint earlier.
_HINT_S = 10.0
_SHORT_S = 0.01


async def a_change_gives_a_hint(lab: Lab) -> None:
    """A put or delete in a partition wakes all of its watches, including those that wait later."""
    _need_hints(lab)
    commits: dict[str, list[Write]] = {
        "a put": [Put(lab.key("a"), b"1")],
        "a second put": [Put(lab.key("a"), b"2")],
        "a delete": [Delete(lab.key("a"))],
        "a put beside others": [Put(lab.key("b", "other"), b"1"), Put(lab.key("a"), b"1")],
    }
    with lab.engine.watch(lab.partition) as watch, lab.engine.watch(lab.partition) as other:
        for what, writes in commits.items():
            watch.clear()
            other.clear()
            await lab.commit(*writes)
            holds(await watch.wait(_HINT_S), f"no hint came for {what}")
            holds(await other.wait(_HINT_S), f"no hint came to a second watch for {what}")
            watch.clear()
            waiting = asyncio.create_task(watch.wait(_HINT_S))
            try:
                await asyncio.sleep(0)
                await lab.commit(*writes)
                holds(await waiting, f"no hint came to a waiting watch for {what}")
            finally:
                await abandon(waiting)


async def a_change_elsewhere_gives_a_hint(lab: Lab) -> None:
    """A change by another engine on the same database gives a hint as well."""
    _need_hints(lab)
    lab.need("second")
    _, second = await lab.both()
    with lab.engine.watch(lab.partition) as watch:
        watch.clear()
        await second.commit([Put(lab.key("a"), b"1")], lab.now_ms)
        holds(await watch.wait(_HINT_S), "no hint came for a change made through another engine")


async def a_wait_ends_without_a_hint(lab: Lab) -> None:
    """A wait returns at its timeout, and can be cancelled; `clear` removes old hints."""
    with lab.engine.watch(lab.partition) as watch:
        await lab.put("a")
        watch.clear()
        async with asyncio.timeout(_HINT_S):
            same(type(await watch.wait(_SHORT_S)), bool, "the type of a wait's answer")
            same(type(await watch.wait(0)), bool, "the type of the answer to a wait of no time")
        waiting = asyncio.create_task(watch.wait(_HINT_S))
        await asyncio.sleep(0)
        await abandon(waiting)
        watch.clear()
        await watch.wait(_SHORT_S)


async def a_watch_can_be_closed(lab: Lab) -> None:
    """Closing a watch affects no other watch. Closing is idempotent."""
    kept = lab.engine.watch(lab.partition)
    gone = lab.engine.watch(lab.partition)
    gone.close()
    gone.close()
    gone.clear()
    await lab.put("a")
    if lab.hints:
        holds(await kept.wait(_HINT_S), "no hint came after another watch was closed")
        same(await gone.wait(_SHORT_S), False, "a closed watch was hinted")
    kept.close()
    await lab.put("b")
    with lab.engine.watch(lab.partition):
        await lab.put("c")


def _need_hints(lab: Lab) -> None:
    if not lab.hints:
        raise NotApplicable("the engine gives no hints")


CHECKS = (
    a_change_gives_a_hint,
    a_change_elsewhere_gives_a_hint,
    a_wait_ends_without_a_hint,
    a_watch_can_be_closed,
)
