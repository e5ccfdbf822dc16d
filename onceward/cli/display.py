"""Output of commands: results to standard output, progress and errors to standard error.

A terminal gets aligned columns that fit. Other programs get lines with tabs and whole values.
"""

import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.redaction import redact

if TYPE_CHECKING:
    from rich.progress import Progress

# Work that is over sooner shows no progress.
PATIENCE_NS = 1_000_000_000
# A last column of a table that is cut to fit a terminal keeps this width.
_CUT_MIN = 20
_GAP = "  "

Cell = str | int
Facts = Iterable[tuple[str, str]]


def complain(text: str) -> None:
    """Print an error on one line, without credentials of the URLs in it."""
    print("onceward:", redact(" ".join(text.split())), file=sys.stderr)


def print_json(value: Any) -> int:
    """Print JSON, with indentation; returns the exit code."""
    print(msgspec.json.format(msgspec.json.encode(value)).decode())
    return 0


def width() -> int | None:
    """The number of columns of the terminal; None if the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_facts(facts: Facts, indent: int = 0) -> None:
    """Print names and values, one on a line. Empty values are left out; long ones are folded."""
    shown = [(name, value) for name, value in facts if value]
    columns = width()
    if columns is None:
        for name, value in shown:
            print(name, "\n\t".join(map(printable, value.splitlines())), sep="\t")
        return
    first = max((cells(name) for name, _ in shown), default=0)
    room = max(columns - indent - first - len(_GAP), _CUT_MIN)
    for name, value in shown:
        lines: list[str] = []
        for line in value.splitlines() or [""]:
            line = printable(line)
            lines += [line] if cells(line) <= room else _folded(line, room)
        label = " " * indent + padded(name, first)
        for number, line in enumerate(lines):
            print((label if number == 0 else " " * len(label)) + _GAP + line)


def print_table(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Print a table. The last column is cut to fit the terminal. If the others do not fit, each row
    is printed as lines of names and values, so that no id is cut."""
    upper = [head.upper() for head in heads]
    columns = width()
    if columns is None:
        _print_tabs([upper, *rows])
        return
    texts = [[_cell(cell) for cell in row] for row in rows]
    widths = [max(map(cells, column)) for column in zip(heads, *texts, strict=True)]
    room = columns - sum(widths[:-1]) - len(_GAP) * (len(heads) - 1)
    if room < min(widths[-1], _CUT_MIN):
        for row in texts:
            print(row[0])
            print_facts(zip(heads[1:], row[1:], strict=True), indent=2)
        return
    right = [all(isinstance(row[number], int) for row in rows) for number in range(len(heads))]
    for line in (upper, *texts):
        words = [padded(*one) for one in zip(line, widths, right, strict=True)]
        if cells(words[-1].rstrip()) > room:
            words[-1] = _cut(words[-1], room)
        print(_GAP.join(words).rstrip())


def print_note(text: str) -> None:
    """Print a sentence about a result: on a terminal beside it, otherwise to standard error."""
    print(text, file=sys.stderr if width() is None else sys.stdout)


def _print_tabs(rows: Iterable[Sequence[Cell]]) -> None:
    """Print cells with tabs between them. Tabs and line ends in values are escaped."""
    for row in rows:
        print("\t".join(printable(str(cell)) for cell in row))


def _cell(cell: Cell) -> str:
    if isinstance(cell, int):
        return f"{cell:,}"
    first, *rest = cell.splitlines() or [""]
    return printable(f"{first} …" if rest else first)


def _folded(line: str, room: int) -> list[str]:
    lines = textwrap.wrap(
        line, room, break_on_hyphens=False, drop_whitespace=False, replace_whitespace=False
    )
    return [line.rstrip() for line in lines]


def _cut(text: str, room: int) -> str:
    while cells(text) >= room:
        text = text[:-1]
    return f"{text}…"


def padded(text: str, columns: int, right: bool = False) -> str:
    """A text with spaces up to a number of columns."""
    spaces = " " * (columns - cells(text))
    return spaces + text if right else text + spaces


def cells(text: str) -> int:
    """The number of columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) > 0 for letter in text)


def printable(text: str) -> str:
    """A text whose control characters are escaped: data cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


class Display:
    """Shows progress on a terminal, if the work takes a while."""

    def __init__(self, *, quiet: bool) -> None:
        self._shown = sys.stderr.isatty() and not quiet
        self._since_ns = _elapsed_ns()
        self._progress: Progress | None = None
        self._what = ""

    def show(self, what: str, done: int, total: int | None) -> None:
        if not self._shown or _elapsed_ns() - self._since_ns < PATIENCE_NS:
            return
        if self._progress is None:
            self._progress = _progress()
            self._progress.start()
        if what != self._what:
            # A new task: one with a total cannot continue without.
            for task in self._progress.task_ids:
                self._progress.remove_task(task)
            self._progress.add_task(what, total=total)
            self._what = what
        text = what if total is not None else f"{what} {done:,}"
        self._progress.update(self._progress.task_ids[0], completed=done, description=text)

    def __enter__(self) -> "Display":
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()


def _elapsed_ns() -> int:
    from onceward.clock import boot_ns  # here: it loads asyncio

    return boot_ns()


def _progress() -> "Progress":
    from rich.console import Console  # here: it takes long to load
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TimeElapsedColumn,
    )

    return Progress(
        SpinnerColumn(),
        "{task.description}",
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
