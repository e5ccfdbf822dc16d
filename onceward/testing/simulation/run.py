"""Runs of scenarios with one seed or many."""

import gc
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from typing import Any, Final, TextIO, get_args

from onceward.errors import BadInput
from onceward.schedule import milliseconds
from onceward.testing.simulation.history import History, Mode, Violation
from onceward.testing.simulation.scenario import Scenario
from onceward.testing.simulation.weather import KINDS, Weather
from onceward.testing.simulation.world import World

TRACE_LINES_SHOWN: Final = 40
_CHUNK_SEEDS: Final = 20


class SimulationFailed(AssertionError):
    """A simulated run violated a guarantee. The message names it and the call that replays it."""

    def __init__(self, message: str, seed: int | None = None, kind: str = "") -> None:
        super().__init__(message, seed, kind)
        self.seed = seed
        self.kind = kind

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class Report:
    """The parameters of one run, and the faults that occurred."""

    seed: int
    mode: Mode
    servers: int
    digest: str
    """A hash of all events; equal for all runs of a seed."""
    operations: int
    answers: int
    virtual_s: float
    counts: Counter[str]
    """The number of faults that occurred, by kind."""
    trace: list[str]


@dataclass(slots=True)
class Summary:
    """The totals of many runs."""

    runs: int = 0
    operations: int = 0
    answers: int = 0
    virtual_s: float = 0.0
    real_s: float = 0.0
    modes: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        self.runs += 1
        self.operations += report.operations
        self.answers += report.answers
        self.virtual_s += report.virtual_s
        self.modes[f"{report.mode}, {report.servers} servers"] += 1
        self.counts.update(report.counts)

    def merge(self, other: "Summary") -> None:
        self.runs += other.runs
        self.operations += other.operations
        self.answers += other.answers
        self.virtual_s += other.virtual_s
        self.modes.update(other.modes)
        self.counts.update(other.counts)

    def missing(self, scenario: type[Scenario]) -> list[str]:
        """Kinds of faults that should have occurred and did not."""
        faults = [kind for mode in scenario.modes for kind in KINDS[mode]]
        return [
            kind
            for kind in dict.fromkeys((*faults, *scenario.kinds))
            if not self.counts[kind] and kind not in scenario.without
        ]

    def __str__(self) -> str:
        facts = {"runs": self.runs, **dict(sorted(self.modes.items()))}
        facts |= {"operations": self.operations, "answers": self.answers}
        facts |= {"virtual hours": round(self.virtual_s / 3600)}
        facts |= dict(sorted(self.counts.items()))
        return "\n".join(f"{count:>12,}  {what}" for what, count in facts.items())


def simulate(
    scenario: type[Scenario],
    seed: int,
    *,
    mode: Mode | None = None,
    servers: int | None = None,
    weather: Weather | None = None,
) -> Report:
    """Run a scenario in a world created from the seed, and check it.

    Mode, number of servers and weather come from the seed unless given. The same arguments give the
    same run, event by event, as `Report.digest` proves. Raises `SimulationFailed` with the seed,
    the violation, the last events and the call that replays it, and `BadInput` for invalid
    arguments.
    """
    _admit(scenario, seed, mode, servers, weather)
    shape = random.Random(f"{seed}/shape")
    drawn_mode = shape.choice(scenario.modes)
    drawn_servers = shape.randint(*scenario.servers)
    mode_used: Mode = mode or drawn_mode
    count = 1 if mode_used == "local" else servers or drawn_servers
    world = World(scenario(), seed, mode_used, count, weather)
    try:
        history = world.run()
    except Exception as error:
        raise _failure(scenario, seed, world, error, mode, servers, weather) from error
    return _report(seed, count, world, history)


def _admit(scenario: Any, seed: Any, mode: Any, servers: Any, weather: Any) -> None:
    _admit_scenario(scenario)
    if type(seed) is not int:
        raise BadInput(f"a seed must be a whole number, not {seed!r:.100}")
    if mode is not None and mode not in get_args(Mode):
        raise BadInput(f"a mode must be one of {', '.join(get_args(Mode))}, not {mode!r:.100}")
    if servers is not None and (type(servers) is not int or servers < 1):
        raise BadInput(f"servers must be 1 or more, not {servers!r:.100}")
    if not isinstance(weather, Weather | None):
        raise BadInput(f"weather must be a `Weather`, not {type(weather).__name__}")


def _admit_scenario(scenario: Any) -> None:
    if not isinstance(scenario, type) or not issubclass(scenario, Scenario):
        raise BadInput(f"a scenario must be a class of `Scenario`, not {scenario!r:.100}")


def _failure(
    scenario: type[Scenario],
    seed: int,
    world: World,
    error: Exception,
    mode: Mode | None,
    servers: int | None,
    weather: Weather | None,
) -> SimulationFailed:
    kind = error.kind if isinstance(error, Violation) else "error"
    what = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
    events = "\n    ".join(world.trace.lines[-TRACE_LINES_SHOWN:])
    given = {"mode": mode, "servers": servers, "weather": weather}
    given = {name: value for name, value in given.items() if value is not None}
    options = "".join(f", {name}={value!r}" for name, value in given.items())
    replay = f"simulate({scenario.__name__}, seed={seed}{options})"
    if weather is None:
        place = f"{scenario.__module__}:{scenario.__qualname__}"
        words = "".join(f" --{name} {value}" for name, value in given.items())
        replay += (
            f"\n      or: python -m onceward.testing.simulate --scenario {place} "
            f"--seed {seed}{words}"
        )
    return SimulationFailed(
        f"{scenario.__name__} with seed {seed} ({world.mode}, {len(world.servers)} servers):\n"
        f"  {what}\n  the last events:\n    {events}\n  replay: {replay}",
        seed,
        kind,
    )


def _report(seed: int, servers: int, world: World, history: History) -> Report:
    return Report(
        seed=seed,
        mode=world.mode,
        servers=servers,
        digest=world.trace.digest(),
        operations=len(history.calls),
        answers=sum(len(call.answers) for call in history.calls),
        virtual_s=world.loop.time(),
        counts=world.counts,
        trace=world.trace.lines,
    )


def simulate_many(
    scenario: type[Scenario],
    seeds: Iterable[int],
    *,
    seconds: float | None = None,
    jobs: int = 1,
    progress: TextIO | None = None,
) -> Summary:
    """Run a scenario with many seeds, until they are used up or the time is over.

    Raises `SimulationFailed` at the first run that violates a guarantee, and at the end if some
    kind of fault never occurred, since the runs would prove less than expected. Raises `BadInput`
    for invalid arguments.
    """
    _admit_scenario(scenario)
    if type(jobs) is not int or jobs < 1:
        raise BadInput(f"jobs must be 1 or more processes, not {jobs!r:.100}")
    if seconds is not None:
        milliseconds(seconds, "the time for all runs")
    if not isinstance(seeds, Iterable):
        raise BadInput(f"seeds must be numbers, such as `range(100)`, not {seeds!r:.100}")
    start = time.monotonic()
    summary = Summary()
    over = (lambda: time.monotonic() - start >= seconds) if seconds is not None else lambda: False
    chunks = _chunks(iter(seeds), over)
    for part in _in_processes(scenario, chunks, jobs) if jobs > 1 else _here(scenario, chunks):
        summary.merge(part)
        summary.real_s = time.monotonic() - start
        if progress is not None:
            rate = summary.runs / summary.real_s
            progress.write(f"\r{summary.runs:,} runs, {rate:.0f}/s, no violation")
            progress.flush()
    if progress is not None:
        progress.write("\n")
    if missing := summary.missing(scenario):
        raise SimulationFailed(
            f"in {summary.runs} runs these faults never happened: {', '.join(missing)}", kind="idle"
        )
    return summary


def _chunks(seeds: Iterator[int], over: Callable[[], bool]) -> Iterator[list[int]]:
    while not over() and (chunk := list(islice(seeds, _CHUNK_SEEDS))):
        yield chunk


def _run_chunk(scenario: type[Scenario], seeds: list[int]) -> Summary:
    summary = Summary()
    for seed in seeds:
        summary.add(simulate(scenario, seed))
    gc.collect()  # a world is large and full of reference cycles
    return summary


def _here(scenario: type[Scenario], chunks: Iterator[list[int]]) -> Iterator[Summary]:
    for chunk in chunks:
        yield _run_chunk(scenario, chunk)


def _in_processes(
    scenario: type[Scenario], chunks: Iterator[list[int]], jobs: int
) -> Iterator[Summary]:
    # Spawned and not forked, since a fork would copy a parent that may have threads.
    pool = ProcessPoolExecutor(jobs, get_context("spawn"))
    try:
        running = [pool.submit(_run_chunk, scenario, chunk) for chunk in islice(chunks, 2 * jobs)]
        while running:
            done = wait(running, return_when=FIRST_COMPLETED).done
            running = [future for future in running if future not in done]
            for chunk in islice(chunks, len(done)):
                running.append(pool.submit(_run_chunk, scenario, chunk))
            for future in done:
                yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)
