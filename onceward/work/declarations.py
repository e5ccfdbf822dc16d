"""Declarations of an application before its start, validated."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any

from onceward import limits, recurrence
from onceward.api.arguments import in_milliseconds
from onceward.engine.base import Engine
from onceward.errors import BadInput
from onceward.functions import admit_async, admit_function, admit_handler
from onceward.recurrence import Repeat
from onceward.schedule import (
    DEFAULT,
    QueueSettings,
    admit_job,
    admit_lease,
    admit_queue,
    is_whole,
    milliseconds,
)
from onceward.sql.server import Outbox
from onceward.tables import Referee
from onceward.tables.games import Rules
from onceward.tables.games.part import Game, Late
from onceward.tables.games.server import admit as admit_rules
from onceward.tables.policy import names_fit
from onceward.webhooks.delivery import Outward
from onceward.webhooks.timers import Send, Spec, timer_key
from onceward.work.annotations import is_coroutine, signature_of
from onceward.work.attempt import Handler
from onceward.work.bulk import changed
from onceward.work.event_links import PREFIX as LINKS
from onceward.work.handlers import Application, Declare, HandlerFunction, handler_types
from onceward.work.job import Job
from onceward.work.sync_job import SyncJob


@dataclass(slots=True)
class Declarations:
    """The declarations of an application, complete before it starts. Methods raise `BadInput`."""

    running: Callable[[], bool] = lambda: False
    """Whether the application runs, which then rejects declarations."""
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings of queues by the name of the queue."""
    handlers: dict[str, Handler] = field(default_factory=dict)
    recurring: dict[str, Spec] = field(default_factory=dict)
    """Timers of recurring jobs by their id."""
    referees: dict[str, Referee] = field(default_factory=dict)
    games: dict[str, Game] = field(default_factory=dict)
    examples: dict[str, Sequence[Any]] = field(default_factory=dict)
    """Bodies for simulations by the name of the queue."""
    outboxes: dict[str, Outbox] = field(default_factory=dict)
    """Outboxes in databases of the application, by name."""
    mounted: dict[str, Callable[..., Awaitable[None]]] = field(default_factory=dict)
    """ASGI applications by their prefixes."""

    def must_be_stopped(self, what: str) -> None:
        if self.running():
            raise BadInput(f"the application is running: {what} before it starts")

    def configure(self, queue: str, settings: Mapping[str, Any]) -> None:
        """Add settings of a queue to those that are known."""
        self.must_be_stopped("declare queues")
        admit_queue(queue)
        known = self.settings.get(queue, {})
        wanted = {**known, **in_milliseconds(QueueSettings, settings)}
        changed(queue, DEFAULT, wanted)
        self.settings[queue] = wanted

    def handle(
        self,
        app: Application,
        queue: str,
        make: Callable[[Callable[..., Any]], Handler],
        settings: Mapping[str, Any],
        examples: Sequence[Any],
    ) -> Declare:
        """A decorator that declares the handler of a queue."""
        self._must_have_no_handler(queue)
        self.configure(queue, settings)

        def declare(fn: Callable[..., Any]) -> HandlerFunction[Any, Any, Any, Any]:
            self.must_be_stopped("declare handlers")
            self._must_have_no_handler(queue)
            fn = _undeclared(fn)
            handler = self.handlers[queue] = make(fn)
            self.examples[queue] = examples
            return HandlerFunction(app, queue, fn, handler.body, handler.result)

        return declare

    def _must_have_no_handler(self, queue: str) -> None:
        if queue in self.handlers:
            raise BadInput(f"the queue {queue!r} already has a handler; declare only one")

    def drain(self, box: Outbox) -> None:
        """Declare an outbox in a database of the application."""
        self.must_be_stopped("declare outboxes")
        if box.name in self.outboxes:
            raise BadInput(
                f"the outbox {box.name!r} is already declared; declare it once, or use another name"
            )
        self.outboxes[box.name] = box

    def recur(self, repeat: Repeat, send: Send, name: str | None) -> None:
        """Declare a recurring job."""
        self.must_be_stopped("declare recurring jobs")
        id_, spec = recurring(repeat, send, name)
        if id_ in self.recurring:
            raise BadInput(f"two recurring jobs have the id {id_}: give each a unique name")
        self.recurring[id_] = spec

    def referee(self, game: str, referee: Referee) -> None:
        self.must_be_stopped("declare referees")
        admit_referee(game, referee)
        if game in self.referees or game in self.games:
            raise BadInput(f"the game {game!r} already has a referee; declare only one")
        self.referees[game] = referee

    def game(self, rules: Rules, late: Late | None) -> None:
        self.must_be_stopped("declare games")
        declared = game_of(rules, late)
        if rules.name in self.games or rules.name in self.referees:
            raise BadInput(f"the game {rules.name} is already declared; declare it once")
        self.games[rules.name] = declared

    def mount(self, prefix: str, web: Callable[..., Awaitable[None]]) -> None:
        self.must_be_stopped("mount")
        admit_mount(prefix, web)
        if prefix in self.mounted:
            raise BadInput(f"{prefix} is already in use by another application; choose another")
        self.mounted[prefix] = web


def admit_app(
    url: Any, name: Any, slots: Any, outward: Any, store: Any, threads: Any, redact: Any
) -> None:
    """Raise `BadInput` for invalid arguments of an application."""
    if not isinstance(url, str | Engine):
        raise BadInput(
            f"an application needs a database URL or an engine, not {type(url).__name__}"
        )
    most = limits.APP_CHARS_MAX
    if not isinstance(name, str) or not (0 < len(name) <= most and _is_plain(name)):
        raise BadInput(
            f"an application's name must have 1 to {most} printable characters, not "
            f"{str(name)[:100]!a}"
        )
    if not is_whole(slots) or not 0 < slots <= limits.SLOTS_MAX:
        raise BadInput(
            f"a database must have 1 to {limits.SLOTS_MAX} slots, not {str(slots)[:100]}"
        )
    if not isinstance(outward, Outward | None):
        raise BadInput(f"`outward` must be an `Outward`, not {type(outward).__name__}")
    if not is_whole(threads) or not 0 < threads <= limits.THREADS_MAX:
        raise BadInput(
            f"the number of threads must be 1 to {limits.THREADS_MAX}, not {str(threads)[:100]}"
        )
    if redact is not None:
        admit_function(redact, "`redact`")
    if not callable(store):
        raise BadInput(
            "`store` must be a function that returns a store for an engine, not "
            f"{type(store).__name__}"
        )


def node_lease_of(node_lease_s: float) -> int:
    """The lease of a node in ms. Raises `BadInput`."""
    lease_ms = milliseconds(node_lease_s, "the lease of a node", limits.LEASE_MS_MAX / 1000)
    if lease_ms < limits.NODE_LEASE_MS_MIN:
        raise BadInput(
            f"the lease of a node must be {limits.NODE_LEASE_MS_MIN} ms or more, not {lease_ms}"
        )
    return lease_ms


def handler_of(
    queue: str, lease_s: float, concurrency: int, batch: int
) -> Callable[[Callable[..., Any]], Handler]:
    """A decorator that turns a function into a handler. It and its result raise `BadInput`."""
    admit_queue(queue)
    lease_ms = milliseconds(lease_s, "a lease", limits.LEASE_MS_MAX / 1000)
    admit_lease(lease_ms)
    whole = is_whole(concurrency) and is_whole(batch)
    if not whole or not 0 <= batch <= concurrency or concurrency < 1:
        raise BadInput(
            "concurrency must be 1 or more, and batch must not exceed it; they are "
            f"{str(concurrency)[:50]} and {str(batch)[:50]}"
        )

    def make(fn: Callable[..., Any]) -> Handler:
        admit_handler(fn, "a handler")
        body, result = handler_types(fn, queue, batch=bool(batch))
        plain = not is_coroutine(fn)
        return Handler(queue, fn, lease_ms, concurrency, batch, body, result, plain)

    return make


def outbox_of(
    policy: str, ask: Callable[[Any], Any] | None, settings: Collection[str]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that turns a function for one external call into the handler of an outbox. It and
    its result raise `BadInput`."""
    if "batch" in settings:
        raise BadInput("an outbox cannot have batches: it makes one call at a time; omit `batch`")
    if policy not in ("repeat", "hold"):
        raise BadInput(f"the policy of an outbox must be 'repeat' or 'hold', not {policy!r}")
    if ask is not None:
        admit_function(ask, "the `ask` of an outbox")
    if ask is not None and policy != "hold":
        raise BadInput(f"`ask` needs an outbox with the policy 'hold', not {policy!r}")

    def make(fn: Callable[..., Any]) -> Callable[..., Any]:
        admit_handler(fn, "an outbox")
        once = policy == "hold"

        def asking(job: Any) -> Callable[[], Any] | None:
            return None if ask is None else partial(ask, job)

        @wraps(fn)
        async def call(job: Job) -> Any:
            return await job.step("call", fn, job, at_most_once=once, ask=asking(job))

        @wraps(fn)
        def call_plain(job: SyncJob) -> Any:
            return job.step("call", fn, job, at_most_once=once, ask=asking(job))

        return call if is_coroutine(fn) else call_plain

    return make


def within_step(
    make: Callable[[Callable[..., Any]], Callable[..., Any]], declare: Declare
) -> Declare:
    """A decorator that declares a function as the one external call of each job."""

    def declares(fn: Callable[..., Any]) -> HandlerFunction[Any, Any, Any, Any]:
        fn = _undeclared(fn)
        declared = declare(make(fn))
        declared.__wrapped__ = fn  # a call makes no step, so that tests can call it
        return declared

    return declares


def recurring(repeat: Repeat, send: Send, name: str | None) -> tuple[str, Spec]:
    """The id and description of the timer of a recurring job. Raises `BadInput`."""
    admit_job(send.queue, send.body, send.options)
    recurrence.admit(repeat)
    if name is not None and not isinstance(name, str):
        raise BadInput(f"the name of a recurring job must be text, not {type(name).__name__}")
    id_ = f"every:{send.queue if name is None else name}"
    timer_key("", id_, slots=1)  # raises for an invalid id
    return id_, Spec(send, repeat=repeat, catch_up="last")


def admit_referee(game: str, referee: Referee) -> None:
    """Raise `BadInput` for an invalid referee or game name."""
    if not names_fit(game, limits.SEATS_NAME_BYTES_MAX):
        raise BadInput(
            f"a game's name must have 1 to {limits.SEATS_NAME_BYTES_MAX} bytes, not "
            f"{str(game)[:100]!a}"
        )
    for name in ("begin", "move", "ended"):
        if not callable(method := getattr(referee, name, None)):
            raise BadInput(f"a referee needs an async function {name!r}")
        admit_async(method, f"the function {name!r} of a referee")


def game_of(rules: Rules, late: Late | None) -> Game:
    """A game with these rules. Raises `BadInput`."""
    admit_rules(rules)
    if late is not None:
        admit_async(late, "`late`")
    return Game(rules, late)


def admit_mount(prefix: str, web: Callable[..., Awaitable[None]]) -> None:
    """Raise `BadInput` for an invalid prefix or application."""
    if type(prefix) is not str or not re.fullmatch(r"/|(/[A-Za-z0-9._~-]+)+", prefix):
        raise BadInput(f"a prefix must be a slash and a plain name, such as /shop, not {prefix!r}")
    if (prefix + "/").startswith(LINKS + "/"):
        raise BadInput(
            f"cannot mount at {prefix}: the pages of event links are below {LINKS}; choose another "
            "prefix"
        )
    if not callable(web):
        raise BadInput(
            f"a mounted application must be an ASGI application, not {type(web).__name__}"
        )
    admit_async(web, "a mounted ASGI application")
    try:
        signature_of(web).bind({}, None, None)
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"a mounted ASGI application takes scope, receive and send, and {type(web).__name__} "
            f"does not ({error}); wrap a WSGI application, as in asgiref.wsgi.WsgiToAsgi(web)"
        ) from error


def _undeclared(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, of one that is the handler of another queue as well."""
    return fn.__wrapped__ if isinstance(fn, HandlerFunction) else fn


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()
