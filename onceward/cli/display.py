"""Output of commands: results to standard output, progress and errors to standard error."""

import sys
from typing import NoReturn

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TimeElapsedColumn

from onceward.clock import boot_ns

# Work that is over sooner shows no progress.
PATIENCE_NS = 1_000_000_000
# For output that goes elsewhere than to a terminal.
WIDTH = 100


def console() -> Console:
    """Where tables are printed."""
    return _Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        raise  # noqa: PLE0704


class Display:
    """Shows on a terminal what goes on, if it takes a while."""

    def __init__(self, *, quiet: bool) -> None:
        self._shown = sys.stderr.isatty() and not quiet
        self._since_ns = boot_ns()
        self._progress: Progress | None = None
        self._what = ""

    def show(self, what: str, done: int, total: int | None) -> None:
        if not self._shown or boot_ns() - self._since_ns < PATIENCE_NS:
            return
        if self._progress is None:
            self._progress = Progress(
                SpinnerColumn(),
                "{task.description}",
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._progress.start()
        if what != self._what:
            # A new task, since one that had an end cannot go on without.
            for task in self._progress.task_ids:
                self._progress.remove_task(task)
            self._progress.add_task(what, total=total)
            self._what = what
        # Without an end there is no share of it: how far it is, is all there is to say.
        text = what if total is not None else f"{what} {done:,}"
        self._progress.update(self._progress.task_ids[0], completed=done, description=text)

    def __enter__(self) -> "Display":
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()
