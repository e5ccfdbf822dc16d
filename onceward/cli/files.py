"""Read-only commands for a database file, safe to use while a server runs on it."""

import argparse
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from rich import box
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from onceward.cli.complaints import complain
from onceward.cli.display import Display, console
from onceward.clock import Clock
from onceward.engine.sqlite.backup import back_up
from onceward.engine.sqlite.check import check
from onceward.engine.sqlite.reader import read
from onceward.engine.sqlite.summary import Due, JournalSummary, Summary, summarise
from onceward.errors import TABLE, CannotOpen, OncewardError
from onceward.redaction import redact_url
from onceward.store.format import check_format


def add_commands(commands: Any) -> None:
    """Add them to the parser."""
    inspect = commands.add_parser(
        "inspect",
        help="say what is in a database",
        description="Say what is in a database as of this moment: how many records of each "
        "kind, what waits in the journal, what is due, how large the files are, and which "
        "process owns it.",
        epilog="example: onceward inspect app.db --json",
    )
    _takes_file(inspect, _inspect)
    inspect.add_argument("--json", action="store_true", help="write JSON, for programs")

    backup = commands.add_parser(
        "backup",
        help="copy a database, consistent as of one moment",
        description="Copy a database as of one moment, with all that was accepted before. Its "
        "owner goes on meanwhile. The copy appears under its name when it is whole and on the "
        "disk, not before, and opens like any database. To restore it, stop the server and "
        "back up the copy to the database's name with --force.",
        epilog="example: onceward backup app.db /backups/app-monday.db",
    )
    _takes_file(backup, _backup)
    backup.add_argument("to", metavar="TO", help="the file to make; it must not exist yet")
    backup.add_argument(
        "--force", action="store_true", help="replace TO if it exists, and its journal"
    )
    backup.add_argument("--quiet", action="store_true", help="show no progress and no result")

    examine = commands.add_parser(
        "check",
        help="find out whether a database is damaged",
        description="Read all of a database and its journal, and say what is damaged: pages, "
        "indexes, keys and values, whether the journal goes on where the table ends, and whether "
        "the records of jobs, locks, timers, rooms, tables and matches agree. "
        "Nothing is repaired. Prints one line if all is well, else one for each problem.",
        epilog="example: onceward check app.db && onceward backup app.db copy.db",
    )
    _takes_file(examine, _check)
    examine.add_argument(
        "--quiet", action="store_true", help="show no progress; print problems only"
    )


def _takes_file(command: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    command.add_argument("file", metavar="FILE", type=_file, help="the database, such as app.db")
    command.set_defaults(run=run)


def _file(text: str) -> str:
    if text.lower().startswith(("postgres:", "postgresql:")):
        raise OncewardError(
            f"{redact_url(text)!r} is not a file: this command reads SQLite databases; for "
            "PostgreSQL use its own tools (psql, pg_dump)",
            code="bad_engine_url",
        )
    return text


def _inspect(arguments: argparse.Namespace) -> int:
    with Display(quiet=arguments.json) as display:
        summary = summarise(arguments.file, Clock().now_ms(), display.show)
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(summary)).decode())
    else:
        _print_summary(summary)
    return 0


def _backup(arguments: argparse.Namespace) -> int:
    with Display(quiet=arguments.quiet) as display:
        copy = back_up(arguments.file, arguments.to, force=arguments.force, progress=display.show)
    if not arguments.quiet:
        print(
            f"copied {copy.records:,} records ({decimal(copy.bytes)}) as of commit "
            f"{copy.last_seq:,} to {copy.path} in {copy.seconds:.1f} s"
        )
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from onceward.parts import all_rules  # here, since it takes long to load

    with Display(quiet=arguments.quiet) as display:
        _admit_format(arguments.file)
        report = check(arguments.file, all_rules(), display.show)
    if not report.problems:
        if not arguments.quiet:
            print(
                f"{arguments.file} is fine: {report.records:,} records, {report.last_seq:,} commits"
            )
        return 0
    for problem in report.problems:
        print(problem)
    sys.stdout.flush()
    count = f"more than {len(report.problems)}" if report.more else str(len(report.problems))
    complain(
        f"{arguments.file} is damaged: {count} problem{'s' * (len(report.problems) > 1)} found. "
        "Restore a backup. [damaged]"
    )
    return TABLE["damaged"].exit


def _admit_format(path: str) -> None:
    """Refuse a database of another format: by the rules of this one it would look damaged."""
    try:
        read(path, lambda snapshot: check_format(snapshot.get), lenient=True)
    except OncewardError as error:
        if error.code == "unsupported_format":
            raise CannotOpen(f"{path}: {error.message}", code=error.code) from error
        # Whatever else is wrong, the check itself reports.


def _print_summary(summary: Summary) -> None:
    out = console()
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, fact in (
        ("database", summary.path),
        ("id", f"{summary.database_id}, format {summary.format}"),
        ("owner", summary.owner or "none: no process has it open"),
        ("last commit", f"{summary.last_seq:,}"),
        ("table", f"{summary.table_records:,} records, as of commit {summary.folded_seq:,}"),
        ("journal", _journal_text(summary.journal)),
        ("expired", f"{summary.expired_records:,} records wait to be swept"),
        ("oldest due", _due_text(summary.oldest_due)),
        ("files", ", ".join(f"{n} {decimal(size)}" for n, size in summary.file_bytes.items())),
    ):
        facts.add_row(name, Text(fact))
    kinds = Table(box=box.SIMPLE_HEAD, show_footer=True, padding=(0, 2))
    kinds.add_column("kind", Text("total"), overflow="fold")
    kinds.add_column("records", f"{summary.total.records:,}", justify="right", no_wrap=True)
    kinds.add_column("bytes", decimal(summary.total.bytes), justify="right", no_wrap=True)
    for kind, amount in summary.kinds.items():
        kinds.add_row(Text(kind), f"{amount.records:,}", decimal(amount.bytes))
    if summary.user:
        kinds.add_section()
    for kind, amount in summary.user.items():
        kinds.add_row(Text(f"{kind} (application)"), f"{amount.records:,}", decimal(amount.bytes))
    out.print(facts)
    out.print(kinds)


def _journal_text(journal: JournalSummary) -> str:
    files = f"{journal.segments} segments, {decimal(journal.bytes)}"
    if not journal.commits:
        return f"all of it is in the table ({files})" if journal.segments else "none"
    return (
        f"{journal.commits:,} commits not yet in the table, that change "
        f"{journal.records:,} records ({files})"
    )


def _due_text(due: Due | None) -> str:
    if due is None:
        return "nothing waits for its time"
    try:
        when = datetime.fromtimestamp(due.due_ms / 1000, UTC).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        when = f"{due.due_ms} ms after 1970"  # beyond the year 9999
    distance = timedelta(seconds=abs(due.late_ms) // 1000)
    relation = f"{distance} late" if due.late_ms >= 0 else f"in {distance}"
    return f"{when} ({relation}), {due.partition} {due.sort}"
