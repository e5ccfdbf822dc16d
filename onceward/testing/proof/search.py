"""The search for a run with faults whose outcome no run without faults has."""

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import permutations
from random import Random
from typing import Any, Final, TextIO

from onceward.app import App
from onceward.errors import BadInput
from onceward.testing.app import load
from onceward.testing.proof.messages import Sender, draw
from onceward.testing.proof.outcome import Lines, difference, equal, outcome_of, without_results
from onceward.testing.proof.scenario import Order, Program, shared
from onceward.testing.proof.services import Services, intercepted
from onceward.testing.proof.timeline import timeline
from onceward.testing.simulation.history import History, Mode, Violation
from onceward.testing.simulation.run import SimulationFailed
from onceward.testing.simulation.weather import Weather
from onceward.testing.simulation.world import World
from onceward.work.events import admit_event

SENDERS_MAX: Final = 4
_SEEDS_PER_DRAW: Final = 10
"""Runs that share messages, and the outcomes without faults."""
_ORDERS_MAX: Final = 24
_SHRINKS_MAX: Final = 400
_SHRINK_S: Final = 30.0
_LOSSES: Final = (0.0, 0.1, 0.3)
# A long pause or delay makes runs of several nodes slow: they send heartbeats.
_LONG_S: Final = 120.0
_JOB_LINE: Final = re.compile(r"job .* of (?P<queue>\S+) is (?P<how>(succeeded|failed).*)", re.S)


@dataclass(frozen=True, slots=True)
class Case:
    """A run: its seed, messages and faults."""

    seed: int
    senders: tuple[Sender, ...]
    keep: frozenset[str] | None = None
    """The faults that happen; None: all that the seed draws."""


@dataclass(slots=True)
class Run:
    """What a run has shown."""

    outcome: Lines
    settled: bool
    """Whether an operator has entered results."""
    error: Violation | None
    fired: list[str]
    events: list[tuple[int, str]]
    attempts: int
    calls: int
    virtual_s: float


@dataclass(slots=True)
class Totals:
    """The totals of many runs."""

    runs: int = 0
    references: int = 0
    attempts: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    real_s: float = 0.0

    def __str__(self) -> str:
        faults = sum(self.faults.values())
        return (
            f"{self.runs:,} runs with {faults:,} faults and {self.attempts:,} attempts, "
            f"{self.references:,} runs without faults: no difference"
        )


class Proof:
    """Simulates an application. Use `prove` or `onceward simulate`.

    Args:
        app: The application, a function that returns it, or `module:name`.
        messages: What is sent: `Message`s, or tuples of them, which one sender sends in order.
            Default: the examples of handlers, and bodies made from their types.
        ignore: Beginnings of lines of outcomes that may differ, such as `record (cache`.
        setup: `async def setup(tx)` writes the initial records; it must be idempotent.
        events: The values of events that jobs wait for: `{"approval": [True, False]}`. Each job
            gets one of them, when it waits.
    """

    def __init__(
        self,
        app: Any,
        *,
        messages: Sequence[Any] = (),
        ignore: Sequence[str] = (),
        setup: Callable[[Any], Any] | None = None,
        events: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self.app: App = load(app)
        self.name = app if isinstance(app, str) else ""
        self.messages = messages
        self.ignore = tuple(ignore)
        self.setup = setup
        self.events = dict(events or {})
        # By the messages of the run.
        self._allowed: dict[str, list[Lines]] = {}
        self._orders: dict[str, Iterator[Order]] = {}
        self._slow: set[str] = set()
        self._services: Services | None = None
        self._ended: dict[str, str] = {}
        self.references = 0
        for one in (app, *ignore):
            if isinstance(one, bytes):
                raise BadInput(f"text is needed, not {one!r:.100}")
        for name, values in self.events.items():
            admit_event(name)
            if not isinstance(values, list | tuple) or not values:
                raise BadInput(
                    f"the event {name!r} needs a list of one value or more, not {values!r:.100}"
                )

    def case(self, seed: int) -> Case:
        """The run of a seed."""
        if type(seed) is not int:
            raise BadInput(f"a seed must be a whole number, not {seed!r:.100}")
        random = Random(f"{seed // _SEEDS_PER_DRAW}/messages")
        return Case(seed, tuple(draw(self.app._declared, self.messages, random, SENDERS_MAX)))

    @contextmanager
    def ready(self) -> Iterator[Callable[[], App]]:
        """Route the application and the HTTP libraries to the simulation, without logs."""
        logger = logging.getLogger("onceward")
        level = logger.level
        logger.setLevel(logging.CRITICAL + 1)
        try:
            with shared(self.app) as make, intercepted(self._current):
                yield make
        finally:
            logger.setLevel(level)

    def _current(self) -> Services:
        assert self._services is not None
        return self._services

    def run(self, make: Callable[[], App], case: Case, order: Order | None = None) -> Run:
        """Run a case; with an order, without faults."""
        shape = Random(f"{case.seed}/shape")
        mode: Mode = "local" if order or key_of(case) in self._slow else "shared"
        mode = shape.choice(("local", mode))
        servers = 1 if mode == "local" else 2
        weather = Weather() if order else None
        events: list[tuple[int, str]] = []
        services = Services(
            Random(f"{case.seed}/services"),
            allow=lambda what: world.allows(what),
            note=lambda text: note(text),
            loss=0.0 if order else shape.choice(_LOSSES),
        )
        program = Program(
            *(make, case.senders, services, lambda text: note(text)),
            *(order, self.setup, self.events),
        )
        self._services = services
        world = World(program, case.seed, mode, servers, weather)
        world.keep = case.keep
        calm = world.database.calm

        def calmed() -> None:
            services.calm()
            calm()

        world.database.calm = calmed  # type: ignore[method-assign]

        def note(text: str) -> None:
            events.append((world.loop.time_ns(), text))

        outcome, error = Lines(), None
        try:
            history: History = world.run()
            outcome = outcome_of(
                *(history, program.outcome, services, program.sent),
                *(self._may_differ, program.entered),
            )
        except Violation as violation:
            error = violation
        if services.changed and error is None:
            url, how = next(iter(services.changed.items()))
            error = Violation("another body", f"a repeated call of {url} differs: {how}")
        events += [(at_ns, f"FAULT {name}") for at_ns, name in world.fired]
        return Run(
            outcome,
            bool(program.entered),
            error,
            [name for _, name in world.fired],
            sorted(events, key=lambda one: one[0]),
            program.attempts,
            services.calls,
            world.loop.time(),
        )

    def _may_differ(self, line: str) -> bool:
        return line.startswith(self.ignore) if self.ignore else False

    def judge(self, make: Callable[[], App], case: Case, run: Run) -> str:
        """Why a run is wrong; empty if it is right."""
        if run.error is not None:
            return str(run.error)
        known = without_results if run.settled else Lines
        found = known(run.outcome)
        while not any(equal(found, known(one)) for one in self._allowed[key_of(case)]):
            if not self._refer(make, case):
                allowed = map(known, self._allowed[key_of(case)])
                missing, extra = difference(found, allowed)
                return "\n".join(
                    ["no run without faults ends like this:"]
                    + [f"  expected: {line}" for line in missing[:3]]
                    + [f"  found:    {line}" for line in extra[:3]]
                )
        return ""

    def _refer(self, make: Callable[[], App], case: Case) -> bool:
        """Add the outcome of another run without faults; False without one."""
        key = key_of(case)
        allowed = self._allowed.setdefault(key, [])
        known = self._orders.setdefault(key, orders(case.senders, events=bool(self.events)))
        order = next(known, None)
        if order is None:
            return False
        reference = self.run(make, Case(case.seed, case.senders, frozenset()), order)
        self.references += 1
        if reference.error is not None and not order.events:
            return True  # a job that waits without a time limit
        if reference.error is not None:
            raise SimulationFailed(
                f"without any fault, the messages {_shown(case)} lead to: {reference.error}",
                case.seed,
                reference.error.kind,
            )
        for line in sorted(reference.outcome):
            job = _JOB_LINE.match(line)
            if job and not self._ended.get(job["queue"], "").startswith("succeeded"):
                self._ended[job["queue"]] = job["how"]
        if reference.virtual_s > _LONG_S:
            self._slow.add(key)
        if reference.outcome not in allowed:
            allowed.append(reference.outcome)
        return True

    def report(self, case: Case, run: Run, why: str) -> str:
        """The reason and the timeline of a failing run."""
        replay = f"onceward simulate {self.name or 'MODULE:NAME'} --seed {case.seed}"
        return "\n".join([f"seed {case.seed}: {why}", *timeline(run.events), f"replay: {replay}"])

    def failing(self) -> str:
        """A queue whose jobs always fail, even without faults; empty without one."""
        for queue, how in self._ended.items():
            if not how.startswith("succeeded"):
                return f"the jobs of queue {queue!r} never succeed, even without faults: {how}"
        return ""

    def look(self, make: Callable[[], App], case: Case) -> tuple[Run, str]:
        """Run a case and judge it."""
        if key_of(case) not in self._allowed:
            self._refer(make, case)  # it also shows whether the messages take long
        run = self.run(make, case)
        return run, self.judge(make, case, run)


def orders(senders: Sequence[Sender], *, events: bool = False) -> Iterator[Order]:
    """Orders in which the messages may take effect, one after the other. With `events`, also those
    in which time limits pass before events arrive."""
    turns = [number for number, sender in enumerate(senders) for _ in sender]
    seen = dict.fromkeys(permutations(turns)) if len(turns) <= 5 else {tuple(turns): None}
    for sent in (True, False) if events else (True,):
        for settled in (False, True):
            for _, order in zip(range(_ORDERS_MAX), seen, strict=False):
                yield Order(order, settled, sent)


def key_of(case: Case) -> str:
    """The messages of a case, as a key."""
    return repr(case.senders)


def _shown(case: Case) -> str:
    return ", ".join(f"{one.queue} {one.body}" for sender in case.senders for one in sender)


def prove(
    proof: Proof,
    seeds: Iterable[int],
    *,
    seconds: float | None = None,
    progress: TextIO | None = None,
    shrunk: bool = True,
) -> Totals:
    """Simulate an application with many seeds.

    Raises `Difference` with a timeline at the first one, reduced if `shrunk`, and
    `SimulationFailed` at the end if nothing was exercised.
    """
    start = time.monotonic()
    totals = Totals()
    shown_s = 0.0
    with proof.ready() as make:
        for seed in seeds:
            if seconds is not None and time.monotonic() - start >= seconds:
                break
            case = proof.case(seed)
            run, why = proof.look(make, case)
            totals.runs += 1
            totals.references = proof.references
            totals.attempts += run.attempts
            totals.faults.update(name.partition(" #")[0] for name in run.fired)
            totals.real_s = time.monotonic() - start
            if progress is not None and totals.real_s - shown_s > 0.2:
                shown_s = totals.real_s
                rate = totals.runs / totals.real_s
                progress.write(f"\r{totals.runs:,} seeds, {rate:.0f} seeds per second ")
                progress.flush()
            if why:
                if shrunk:
                    case, run, why = shrink(proof, make, case, run, why)
                raise Difference(proof.report(case, run, why), case)
    if progress is not None:
        progress.write("\n")
    what = "" if totals.faults else "no fault happened"
    what = proof.failing() or what if totals.attempts else "no handler ran"
    if what:
        raise SimulationFailed(
            f"the simulation is vacuous: in {totals.runs} runs {what}. Run more seeds, and check "
            "the messages and the handlers of their queues",
            kind="vacuous",
        )
    return totals


def shrink(
    proof: Proof, make: Callable[[], App], case: Case, run: Run, why: str
) -> tuple[Case, Run, str]:
    """Reduce the messages and faults of a failing case, as long as it fails (delta debugging)."""
    left, start_s = _SHRINKS_MAX, time.monotonic()
    best = replace(case, keep=frozenset(run.fired)), run, why

    def fails(candidate: Case) -> bool:
        nonlocal left, best
        if left <= 0 or time.monotonic() - start_s > _SHRINK_S:
            return False
        left -= 1
        try:
            found, reason = proof.look(make, candidate)
        except (SimulationFailed, BadInput):
            return False
        if reason:
            # Faults that were kept and did not happen are not needed.
            best = replace(candidate, keep=frozenset(found.fired)), found, reason
        return bool(reason)

    fails(replace(best[0], keep=frozenset()))
    for kind in dict.fromkeys(map(_kind, best[1].fired)):
        keep = [name for name in best[1].fired if _kind(name) != kind]
        fails(replace(best[0], keep=frozenset(keep)))
    for _ in range(3):
        for number in reversed(range(len(best[0].senders))):
            senders = best[0].senders
            if len(senders) > 1:
                fails(replace(best[0], senders=senders[:number] + senders[number + 1 :]))
        size = max(len(best[0].keep or ()) // 2, 1)
        while size:
            names = [name for name in best[1].fired if name in (best[0].keep or ())]
            for start in range(0, len(names), size):
                gone = set(names[start : start + size])
                fails(replace(best[0], keep=(best[0].keep or frozenset()) - gone))
            size //= 2
    return best


def _kind(fault: str) -> str:
    """The kind of a fault, without its node, message and number."""
    return re.sub(r"^[a-h]\.\d+ |^c\d+-\d+ (answer )?to \w+ | #\d+$", "", fault)


class Difference(SimulationFailed):
    """A run whose outcome no run without faults has."""

    def __init__(self, message: str, case: Case) -> None:
        super().__init__(message, case.seed, "difference")
        self.case = case
