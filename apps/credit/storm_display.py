"""Terminal output of a storm: progress bars while it runs, and a table at the end."""

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TimeElapsedColumn
from rich.table import Table

from apps.credit.storm import Course, Plan


class Sight:
    """Progress bars on a terminal."""

    def __init__(self, plan: Plan, out: Console | None = None) -> None:
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

    def show(self, course: Course) -> None:
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


def print_course(course: Course, out: Console) -> None:
    """Print the results and violations."""
    plan, pulled, told = course.plan, course.pulled, course.told
    table = Table(box=box.SIMPLE_HEAD, show_header=False, padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    keys = "supports idempotency keys" if plan.keys else "does not support idempotency keys"
    cases = f"{course.doubts} cases, settled manually" if course.doubts else "none"
    for what, said in (
        (
            "sent",
            f"{plan.applications:,} applications, {course.acknowledged:,} notifications, "
            f"{course.envelopes:,} envelopes by {plan.senders} senders",
        ),
        (
            "acknowledged",
            f"the slowest in {course.slowest_s * 1000:.0f} ms"
            + (f"; {len(course.unacknowledged)} only when repeated" * bool(course.unacknowledged)),
        ),
        (
            "repeats",
            ", ".join(f"{cause} {times:,}" for cause, times in sorted(course.causes.items())),
        ),
        (
            "workers",
            f"{plan.workers}; {course.kills} killed, {course.pauses} suspended for "
            f"twice their lease of {plan.lease_s:g} s"
            + (f", {course.fallen} restarted" * bool(course.fallen)),
        ),
        ("bureau", f"{keys}; a pull takes {plan.pull_s:g} s"),
        ("requests", f"{pulled.asked:,}; {pulled.refused} failed, {pulled.repeated} deduplicated"),
        ("in doubt", cases),
        ("pulls", f"{pulled.done:,}, at most {pulled.most} for one application"),
        (
            "results",
            f"{told.results:,} under one id each; {told.repeated} repeated and deduplicated",
        ),
    ):
        table.add_row(what, said)
    out.print(table)
    wrong = course.violations()
    for words in wrong:
        out.print(f"  [bold red]violated[/]: {words}")
    if not wrong:
        out.print("  [bold green]One pull for each application.[/]\n")
