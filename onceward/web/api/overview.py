"""What a server does and how it is, for those who watch it: live, and at a glance."""

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from onceward import __version__, limits
from onceward.observe.samples import Sample, Totals
from onceward.web.auth import Access
from onceward.web.http import Request, Response
from onceward.web.routes import Route
from onceward.webhooks.http.addresses import authority_of

if TYPE_CHECKING:
    from onceward.web.server import Server

_QUEUES_MAX = 200
_STUCK_MS = 60_000


class PulseView(msgspec.Struct):
    """What happened in each of the last seconds, and what has happened up to now."""

    now_ms: int
    every_ms: int
    """The time from one sample to the next."""
    last: int
    """The number of the last sample, to be given as `after` the next time."""
    samples: list[Sample]
    totals: Totals


class QueueLine(msgspec.Struct):
    """A queue at a glance; what was counted by this node, since it began."""

    name: str
    jobs: dict[str, int]
    oldest_ready_ms: int | None
    paused: bool
    accepted: float
    repeats: float
    done: float
    failed: float


class Attention(msgspec.Struct):
    """Something that somebody should look at."""

    kind: str
    """dead, doubt, stuck (jobs that no worker takes), endpoint (that fails), receiver (that does
    not answer, so that calls to it are paused), clock or alarm."""
    name: str
    """Of the queue or endpoint, the URL of the receiver without its path, or the code of the
    alarm."""
    count: int = 0
    """Of jobs; of a receiver: how many calls in a row got no answer."""
    since_ms: int = 0
    said: str = ""
    """The last error of an endpoint or receiver; the message of an alarm."""
    caller: str = ""
    """Whose endpoint it is, or whose calls wait for the receiver; empty if these are several."""
    until_ms: int = 0
    """When this node calls a receiver again; the past, if a call is under way."""


class Overview(msgspec.Struct):
    """A server at a glance."""

    version: str
    node: str
    dev: bool
    now_ms: int
    started_ms: int
    counted_ms: int | None
    """When jobs were counted; None: they have not been yet."""
    jobs: dict[str, int]
    timers: dict[str, int]
    rooms: int
    queues: list[QueueLine]
    """Those that the caller may manage, as many as can be shown."""
    attention: list[Attention]


class SenderLine(msgspec.Struct):
    """Who has sent to a queue, since this node began."""

    queue: str
    sender: str
    accepted: int
    repeats: int
    refused: int
    """Known keys with another body."""
    last_ms: int
    ack_ms: float | None
    """The median of how long it took until a message was durable."""
    ack_99_ms: float | None
    ack_max_ms: float | None
    causes: dict[str, int]
    """Why messages were repeated, where the application knows: how often, by cause."""


class SenderList(msgspec.Struct):
    """Senders by queue and name."""

    senders: list[SenderLine]


async def samples(server: "Server", request: Request) -> Response:
    server.caller(request)
    after = request.number("after", limits.KEY_NUMBER_MAX)
    samples = server.samples
    return Response.of(
        PulseView(
            server.app.store.clock.now_ms(),
            int(limits.PULSE_S * 1_000),
            samples.last,
            samples.since(after),
            samples.totals(),
        )
    )


async def overview(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    counts, clock = server.counts, server.app.store.clock
    queues = _queues(server, caller)
    jobs = Counter[str]()
    for line in queues:
        jobs.update(line.jobs)
    return Response.of(
        Overview(
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
    )


async def senders(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    queue = request.query(["queue"]).get("queue")
    found = [
        SenderLine(
            its_queue,
            name,
            sender.first,
            sender.repeats,
            sender.refused,
            sender.last_ms,
            _ms(sender.ack_s(0.5)),
            _ms(sender.ack_s(0.99)),
            _ms(sender.slowest_s) if sender.ack_seconds.count else None,
            sender.causes,
        )
        for its_queue, name, sender in server.app.senders
        if queue in (None, its_queue)
        and (caller.may("manage", its_queue) or caller.may("operate", its_queue))
    ]
    return Response.of(SenderList(found))


def _queues(server: "Server", caller: Access) -> list[QueueLine]:
    meters, counts, queue_settings = (
        server.app.store.meters,
        server.counts,
        server.app.node.queue_settings,
    )
    counted: dict[str, Counter[str]] = {}
    for meter, label, values in (
        ("accepted", "duplicate", {"no": "accepted", "yes": "repeats"}),
        ("ended", "state", {"done": "done", "asleep": ""}),
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
                QueueLine(
                    name,
                    dict(queue.jobs) if queue else {},
                    queue.oldest_ready_ms if queue else None,
                    queue_settings(name).paused,
                    *(tally[what] for what in ("accepted", "repeats", "done", "failed")),
                )
            )
    return lines


def _weight(line: QueueLine) -> float:
    """How much there is to see of a queue."""
    return line.accepted + line.done + sum(line.jobs.values())


def _attention(server: "Server", caller: Access, queues: list[QueueLine]) -> list[Attention]:
    clock, found = server.app.store.clock, list[Attention]()
    if caller.may("operate", ""):  # that is, all of it: alarms are about the whole node
        for alarm in server.app.alarms:
            found.append(Attention("alarm", alarm.code, 0, alarm.since_ms, alarm.message))
    if clock.jump_ms:
        found.append(Attention("clock", "", clock.jump_ms))
    for kind in ("doubt", "dead"):
        found += [Attention(kind, q.name, q.jobs[kind]) for q in queues if q.jobs.get(kind)]
    now_ms = clock.now_ms()
    for queue in queues:
        oldest_ms = queue.oldest_ready_ms
        if oldest_ms is not None and now_ms - oldest_ms > _STUCK_MS and not queue.paused:
            found.append(Attention("stuck", queue.name, queue.jobs.get("ready", 0), oldest_ms))
    for one in server.counts.failing:
        own = one.caller == caller.id and caller.may("endpoint", one.id)
        if own or caller.may("operate", one.id):
            found.append(Attention("endpoint", one.id, 1, one.since_ms, one.said, one.caller))
    return found + _paused(server, caller)


def _paused(server: "Server", caller: Access) -> list[Attention]:
    """One entry for each receiver that calls wait for, however many callers these are of."""
    found: dict[str, Attention] = {}
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
            found[name] = Attention(
                *("receiver", name, one.failures, one.since_ms, one.reason, one.caller),
                until_ms=one.until_ms,
            )
        else:
            shown.until_ms = min(shown.until_ms, one.until_ms)
            shown.caller = shown.caller if shown.caller == one.caller else ""
    return list(found.values())


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1_000, 3)


ROUTES = [
    Route(
        "GET",
        "/v1/pulse",
        samples,
        "What happened in each of the last seconds",
        gives=PulseView,
        query=("after",),
    ),
    Route("GET", "/v1/overview", overview, "The server at a glance", gives=Overview),
    Route(
        "GET",
        "/v1/senders",
        senders,
        "Who sends to which queue, how often again, and how quickly it was answered",
        gives=SenderList,
        query=("queue",),
    ),
]
