"""HTTP functions for suspended callers: suspend, resume and transfer."""

from functools import partial

from onceward import keys, limits
from onceward.api import callers as api
from onceward.callers import Caller
from onceward.errors import BadInput
from onceward.store.transaction import Transaction
from onceward.web.calls import Call, binder
from onceward.web.routes import Route
from onceward.webhooks import endpoints, suspensions
from onceward.webhooks.suspensions import Suspension

ROUTES: list[Route] = []
answers = binder(ROUTES)


@answers(api.LIST)
async def list_(call: Call) -> api.SuspendedCallers:
    async def fn(tx: Transaction) -> list[api.SuspendedCaller]:
        rows = await tx.scan(suspensions.PARTITION, Suspension, limit=limits.LIST_MAX)
        return [
            api.SuspendedCaller(
                keys.split(row.key[1])[0], row.value.since_ms, row.value.by, row.value.to
            )
            for row in rows
        ]

    return api.SuspendedCallers(await call.app.store.run(fn))


@answers(api.SUSPEND)
async def suspend(call: Call, id_: str) -> api.SuspendedCaller:
    id_ = _named(id_)

    async def fn(tx: Transaction) -> api.SuspendedCaller:
        await suspensions.suspend(tx, id_, call.caller.id)
        known = await suspensions.get(tx, id_)
        assert known is not None
        return api.SuspendedCaller(id_, known.since_ms, known.by, known.to)

    return await call.app.store.run(fn)


@answers(api.RESUME)
async def resume(call: Call, id_: str) -> api.ResumedCaller:
    id_ = _named(id_)
    await call.app.store.run(partial(suspensions.resume, caller=id_))
    return api.ResumedCaller(id_, await call.app.timers.resume_caller(id_))


@answers(api.TRANSFER)
async def transfer(call: Call, id_: str, asked: api.TransferCaller) -> api.TransferredCaller:
    id_, to = _named(id_), _named(asked.to)
    if id_ == to:
        raise BadInput(f"{id_!r} already owns these; name another caller in `to`")
    store = call.app.store
    await store.run(partial(suspensions.transfer, caller=id_, to=to, by=call.caller.id))
    timers, kept = await call.app.timers.transfer(id_, to)
    moved, after = 0, ""
    while True:
        found = await store.run(
            partial(endpoints.all_of, caller=id_, after=after, most=limits.PAGE_JOBS)
        )
        for endpoint, _ in found:
            after = endpoint
            if await store.run(partial(endpoints.transfer, id_=endpoint, caller=id_, to=to)):
                moved += 1
            else:
                kept.append(endpoint)
        if len(found) < limits.PAGE_JOBS:
            return api.TransferredCaller(id_, to, timers, moved, kept[: limits.LIST_MAX])


def _named(id_: str) -> str:
    """The id of a caller that can be suspended. Raises `BadInput`."""
    caller = Caller.parse(id_)
    if not caller.id:
        raise BadInput(
            "the application itself cannot be suspended; name a caller, as in key:billing",
            code="bad_name",
        )
    return caller.id
