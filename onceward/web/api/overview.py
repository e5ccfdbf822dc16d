"""HTTP functions for the server: activity, alarms, senders, settings and clock."""

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import UNSET

from onceward import __version__, limits
from onceward.api import server as api
from onceward.web.auth import Access
from onceward.web.calls import Call, binder
from onceward.web.routes import Route
from onceward.webhooks.http.addresses import authority_of

if TYPE_CHECKING:
    from onceward.web.server import Server

_QUEUES_MAX = 200
_STUCK_MS = 60_000


ROUTES: list[Route] = []
answers = binder(ROUTES)


@answers(api.ACTIVITY)
async def activity(call: Call, asked: api.SamplesQuery) -> api.Activity:
    samples = call.server.samples
    return api.Activity(
        call.app.store.clock.now_ms(),
        int(limits.ACTIVITY_S * 1_000),
        samples.last,
        samples.since(asked.after),
        samples.totals(),
    )


@answers(api.OVERVIEW)
async def overview(call: Call) -> api.Overview:
    server, caller = call.server, call.caller
    counts, clock = server.counts, server.app.store.clock
    queues = _queues(server, caller)
    jobs = Counter[str]()
    for line in queues:
        jobs.update(line.jobs)
    return api.Overview(
        __version__,
        server.app.name,
        server.auth.dev,
        clock.now_ms(),
        server.started_ms,
        counts.counted_ms,
        dict(jobs),
        dict(counts.timers),
        counts.rooms,
        sorted(queues, key=_weight, reverse=True)[:_QUEUES_MAX],
        _attention(server, caller, queues),
    )


@answers(api.SENDERS)
async def senders(call: Call, asked: api.SendersQuery) -> api.SenderList:
    caller = call.caller
    found = [
        api.Sender(
            its_queue,
            name,
            sender.first,
            sender.repeats,
            sender.rejected,
            sender.last_ms,
            _ms(sender.ack_s(0.5)),
            _ms(sender.ack_s(0.99)),
            _ms(sender.slowest_s) if sender.ack_seconds.count else None,
            sender.causes,
        )
        for its_queue, name, sender in call.app.senders
        if asked.queue in (UNSET, its_queue)
        and (caller.may("manage", its_queue) or caller.may("operate", its_queue))
    ]
    return api.SenderList(found)


@answers(api.SETTINGS)
async def settings(call: Call) -> api.ServerSettings:
    return api.ServerSettings(
        [api.ServerSetting(s.name, s.shown, s.source, s.meaning) for s in call.server.settings]
    )


@answers(api.CLOCK)
async def clock(call: Call) -> api.ServerClock:
    store = call.app.store
    return api.ServerClock(store.clock.now_ms(), store.clock.wall_ms, store.clock_held)


@answers(api.CONFIRM_CLOCK)
async def confirm_clock(call: Call) -> api.ServerClock:
    await call.app.confirm_clock()
    return await clock(call)


def _queues(server: "Server", caller: Access) -> list[api.QueueActivity]:
    meters, counts, queue_settings = (
        server.app.store.meters,
        server.counts,
        server.app.node.queue_settings,
    )
    counted: dict[str, Counter[str]] = {}
    for meter, label, values in (
        ("accepted", "duplicate", {"no": "accepted", "yes": "repeats"}),
        ("ended", "state", {"succeeded": "succeeded", "scheduled": ""}),
    ):
        for labels, count in meters.labelled(meter):
            name = values.get(labels.get(label, ""), "failed")
            counted.setdefault(labels.get("queue", ""), Counter())[name] += int(count)
    names = {*queue_settings.names(), *counts.queues}
    lines = []
    for name in sorted(names):
        if caller.may("manage", name):
            queue, tally = counts.queues.get(name), counted.get(name, Counter[str]())
            lines.append(
                api.QueueActivity(
                    name,
                    dict(queue.jobs) if queue else {},
                    queue.oldest_queued_ms if queue else None,
                    queue_settings(name).paused,
                    *(tally[what] for what in ("accepted", "repeats", "succeeded", "failed")),
                )
            )
    return lines


def _weight(line: api.QueueActivity) -> float:
    """The sort weight of a queue: how active it is."""
    return line.accepted + line.succeeded + sum(line.jobs.values())


def _attention(
    server: "Server", caller: Access, queues: list[api.QueueActivity]
) -> list[api.Attention]:
    clock, found = server.app.store.clock, list[api.Attention]()
    if caller.may("operate", ""):  # only with full access, since alarms are about the whole node
        for alarm in server.app.alarms:
            found.append(api.Attention("alarm", alarm.code, 0, alarm.since_ms, alarm.message))
    if clock.jump_ms:
        found.append(api.Attention("clock", "", clock.jump_ms))
    for kind in ("in_doubt", "failed"):
        found += [api.Attention(kind, q.name, q.jobs[kind]) for q in queues if q.jobs.get(kind)]
    now_ms = clock.now_ms()
    for queue in queues:
        oldest_ms = queue.oldest_queued_ms
        if oldest_ms is not None and now_ms - oldest_ms > _STUCK_MS and not queue.paused:
            found.append(api.Attention("stuck", queue.name, queue.jobs.get("queued", 0), oldest_ms))
    for one in server.counts.failing:
        own = one.caller == caller.id and caller.may("endpoint", one.id)
        if own or caller.may("operate", one.id):
            found.append(api.Attention("endpoint", one.id, 1, one.since_ms, one.said, one.caller))
    return found + _paused(server, caller)


def _paused(server: "Server", caller: Access) -> list[api.Attention]:
    """One entry for each receiver with waiting calls, for all of its callers."""
    found: dict[str, api.Attention] = {}
    delivery = server.app.delivery
    for one in [] if delivery is None else delivery.receivers.list_paused():
        own = one.caller == caller.id and caller.may(*one.scope)
        if not own and not caller.may("operate", one.scope.name):
            continue
        name = f"{one.host[0]}://{authority_of(*one.host)}"
        shown = found.get(name)
        if shown is None:
            if len(found) >= limits.FAILING_TOLD_MAX:
                break
            found[name] = api.Attention(
                *("receiver", name, one.failures, one.since_ms, one.reason, one.caller),
                until_ms=one.until_ms,
            )
        else:
            shown.until_ms = min(shown.until_ms, one.until_ms)
            shown.caller = shown.caller if shown.caller == one.caller else ""
    return list(found.values())


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1_000, 3)
