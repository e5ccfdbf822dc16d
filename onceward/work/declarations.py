"""What an application declares before it starts: queues, handlers, games, what recurs."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, Unpack

from onceward import limits, recurrence
from onceward.errors import BadInput
from onceward.job_options import JobKeywords, job_options
from onceward.recurrence import Cron, Interval, Repeat
from onceward.schedule import (
    DEFAULT,
    admit_job,
    admit_lease,
    admit_queue,
    is_whole,
    milliseconds,
)
from onceward.tables import Referee
from onceward.tables.games import Rules
from onceward.tables.games.part import Game, Late
from onceward.tables.games.server import admit as admit_rules
from onceward.tables.policy import names_fit
from onceward.webhooks.timers import Send, Spec, timer_key
from onceward.work.attempt import Handler
from onceward.work.bulk import changed

Function = TypeVar("Function", bound=Callable[..., Awaitable[Any]])


class Declared:
    """Collects declarations. Each is refused while the application runs."""

    def __init__(self) -> None:
        self._settings: dict[str, dict[str, Any]] = {}
        self._handlers: dict[str, Handler] = {}
        self._recurring: dict[str, Spec] = {}
        self._referees: dict[str, Referee] = {}
        self._games: dict[str, Game] = {}
        self.mounted: dict[str, Callable[..., Awaitable[None]]] = {}
        """ASGI applications by their prefixes."""

    def queue(self, name: str, **settings: Any) -> None:
        """Declare settings of a queue (see `Settings`); they are written at the start. Those
        that are not named stay as they are. Raises `BadInput`."""
        self._must_be_stopped("declare queues")
        admit_queue(name)
        wanted = {**self._settings.get(name, {}), **settings}
        changed(name, DEFAULT, wanted)
        self._settings[name] = wanted

    def referee(self, game: str, referee: Referee) -> None:
        """Let the games of a name be judged, at tables that name it. Raises `BadInput`."""
        self._must_be_stopped("declare referees")
        if not names_fit(game, limits.SEATS_NAME_BYTES_MAX):
            raise BadInput(f"a game's name has 1 to {limits.SEATS_NAME_BYTES_MAX} bytes")
        if game in self._referees or game in self._games:
            raise BadInput(f"the game {game!r} has a referee already")
        for name in ("begin", "move", "ended"):
            if not callable(getattr(referee, name, None)):
                raise BadInput(f"a referee has an async function {name!r}")
        self._referees[game] = referee

    def handler(
        self,
        queue: str,
        *,
        lease_s: float = 30.0,
        concurrency: int = 16,
        batch: int = 0,
        attempts: int | None = None,
        **settings: Any,
    ) -> Callable[[Function], Function]:
        """Run a function on the jobs of a queue: `async def fn(job)`, or `async def fn(jobs)`
        with a list of up to `batch` of them, which succeed or fail each for itself.

        What it returns is the job's result, for a batch a list of them or None. An error fails
        the job; in a batch all jobs, unless it comes from a step of one. `concurrency` is how
        many jobs this process has at hand at once; further settings are those of the queue, as
        for `queue`. Raises `BadInput`.
        """
        admit_queue(queue)
        lease_ms = milliseconds(lease_s, "a lease", limits.LEASE_MS_MAX / 1000)
        admit_lease(lease_ms)
        whole = is_whole(concurrency) and is_whole(batch)
        if not whole or not 0 <= batch <= concurrency or concurrency < 1:
            raise BadInput("concurrency is 1 or more, and batch at most that")
        if queue in self._handlers:
            raise BadInput(f"the queue {queue!r} has a handler already")
        if attempts is not None:
            settings["attempts_max"] = attempts
        self.queue(queue, **settings)

        def declare(fn: Function) -> Function:
            self._must_be_stopped("declare handlers")
            if not callable(fn):
                raise BadInput(f"a handler is an async function, not {fn!r}")
            if queue in self._handlers:
                raise BadInput(f"the queue {queue!r} has a handler already")
            self._handlers[queue] = Handler(queue, fn, lease_ms, concurrency, batch)
            return fn

        return declare

    def outbox(
        self,
        queue: str,
        *,
        policy: str = "repeat",
        ask: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> Callable[[Function], Function]:
        """Let a function make outward calls: `async def fn(job)` makes the one that the job's
        body describes, and returns what it was answered. `job.id` is the same for ever.

        With the policy `repeat` a call that was cut off is made again; the receiver tells
        repeats by the id. With `hold` it is not: `ask(job)`, if given, finds out what became
        of it (or raises `NotDone`), else the job is in doubt until someone settles its step
        `call`. Options are those of `handler`, but `batch`. Raises `BadInput`.
        """
        if policy not in ("repeat", "hold"):
            raise BadInput(f"the policy of an outbox is repeat or hold, not {policy!r}")
        if ask is not None and not callable(ask):
            raise BadInput(f"an outbox asks by a function, not {type(ask).__name__}")
        if ask is not None and policy != "hold":
            raise BadInput("only an outbox with the policy hold asks what became of a call")
        if options.get("batch"):
            raise BadInput("an outbox makes one call at a time")
        declare_handler = self.handler(queue, **options)

        def declare(fn: Function) -> Function:
            if not callable(fn):
                raise BadInput(f"an outbox is an async function, not {fn!r}")

            async def call(job: Any) -> Any:
                return await job.step(
                    "call",
                    fn,
                    job,
                    at_most_once=policy == "hold",
                    ask=None if ask is None else lambda: ask(job),
                )

            declare_handler(call)
            return fn

        return declare

    def game(self, rules: Rules, *, late: Late | None = None) -> None:
        """Let there be a game by these rules. `late(tx, match)` hears when the clock of a match
        has ended it, in that commit. Raises `BadInput`."""
        self._must_be_stopped("declare games")
        admit_rules(rules)
        if late is not None and not callable(late):
            raise BadInput(f"`late` is an async function, not {type(late).__name__}")
        if rules.name in self._games or rules.name in self._referees:
            raise BadInput(f"there is a game {rules.name} already")
        self._games[rules.name] = Game(rules, late)

    def mount(self, prefix: str, web: Callable[..., Awaitable[None]]) -> None:
        """Let an ASGI application answer what is asked below a prefix, such as `/shop`, where
        this application is served; with `/`, the front page alone. It gets requests up to the
        largest that the server takes, and looks after credentials itself. Raises `BadInput`."""
        self._must_be_stopped("mount")
        if type(prefix) is not str or not re.fullmatch(r"/|(/[A-Za-z0-9._~-]+)+", prefix):
            raise BadInput(f"a prefix is a slash and a plain name, as in /shop, not {prefix!r}")
        if prefix in self.mounted:
            raise BadInput(f"something is mounted at {prefix} already")
        if not callable(web):
            raise BadInput(f"an ASGI application is mounted, not {type(web).__name__}")
        self.mounted[prefix] = web

    def every(
        self,
        seconds: float,
        queue: str,
        body: Any = None,
        *,
        name: str | None = None,
        **options: Unpack[JobKeywords],
    ) -> None:
        """Send a job to a queue every so many seconds, once for all nodes together; what was
        missed while none ran is made up for by one job.

        It is a timer with the id `every:NAME`, where `name` is that of the queue if not given. It
        goes on, also if it is declared no more, until that timer is cancelled. Raises `BadInput`.
        """
        interval = Interval(milliseconds(seconds, "the time between two jobs"), 0)
        self._recur(interval, Send(queue, body, job_options(options)), name)

    def cron(
        self,
        when: str,
        queue: str,
        body: Any = None,
        *,
        zone: str = "UTC",
        name: str | None = None,
        **options: Unpack[JobKeywords],
    ) -> None:
        """The same as `every`, at the times of a cron expression (with seconds first, if it has
        six fields) in a time zone."""
        self._recur(Cron(when, zone), Send(queue, body, job_options(options)), name)

    def _recur(self, repeat: Repeat, send: Send, name: str | None) -> None:
        self._must_be_stopped("declare recurring jobs")
        admit_job(send.queue, send.body, send.options)
        recurrence.admit(repeat)
        if name is not None and not isinstance(name, str):
            raise BadInput(f"the name of what recurs is text, not {type(name).__name__}")
        id_ = f"every:{send.queue if name is None else name}"
        timer_key("", id_, slots=1)  # can it be one?
        if id_ in self._recurring:
            raise BadInput(f"two jobs recur as {id_}: give each a name of its own")
        self._recurring[id_] = Spec(send, repeat=repeat, catch_up="last")

    def _must_be_stopped(self, what: str) -> None:
        raise NotImplementedError
