"""`onceward db`: read-only commands for database files, safe to use while a server runs."""

import argparse
import sys
from datetime import UTC, datetime, timedelta

from rich.filesize import decimal

from onceward.cli.display import Cell, Display, complain, print_facts, print_json, print_table
from onceward.cli.parser import Parser
from onceward.clock import Clock
from onceward.engine.sqlite.backup import back_up
from onceward.engine.sqlite.check import check
from onceward.engine.sqlite.reader import read
from onceward.engine.sqlite.summary import Due, JournalSummary, Summary, summarise
from onceward.errors import TABLE, CannotOpen, OncewardError
from onceward.redaction import redact_url
from onceward.store.format import check_format


def fill(parser: Parser) -> None:
    """Add the commands of `onceward db`."""
    parser.description = (
        "Inspect, back up and check SQLite database files. These commands only read the database, "
        "and can run while a server uses it."
    )
    parser.add_command("inspect", "Show what a database contains", _fill_inspect)
    parser.add_command("backup", "Copy a database, consistent at one point in time", _fill_backup)
    parser.add_command("check", "Check a database for damage", _fill_check)


def _fill_inspect(parser: Parser) -> None:
    parser.description = (
        "Show what a database contains: the number of records of each kind, the state of the "
        "journal, the oldest due entry, the size of the files, and the process that owns it."
    )
    parser.epilog = "example: onceward db inspect app.db --json"
    _add_file(parser)
    parser.add_argument("--json", action="store_true", help="Print JSON")
    parser.set_defaults(run=_inspect)


def _fill_backup(parser: Parser) -> None:
    parser.description = (
        "Copy a database as of one point in time, while its server continues. The copy appears "
        "under its name once it is complete and durable. To restore it, stop the server, and back "
        "up the copy to the name of the database with --force."
    )
    parser.epilog = "example: onceward db backup app.db /backups/app-monday.db"
    _add_file(parser)
    parser.add_argument("to", metavar="TO", help="File to create; it must not exist")
    parser.add_argument("--force", action="store_true", help="Replace TO and its journal")
    parser.add_argument("--quiet", action="store_true", help="Print no progress and no result")
    parser.set_defaults(run=_backup)


def _fill_check(parser: Parser) -> None:
    parser.description = (
        "Read a whole database and its journal, and report damage: pages, indexes, keys, values, "
        "gaps in the journal, and records of jobs, locks, timers, rooms, tables and matches that "
        "contradict each other. It repairs nothing. It prints one line if the database is intact, "
        "or else one line for each problem."
    )
    parser.epilog = "example: onceward db check app.db && onceward db backup app.db copy.db"
    _add_file(parser)
    help_ = "Print problems only, and no progress"
    parser.add_argument("--quiet", action="store_true", help=help_)
    parser.set_defaults(run=_check)


def _add_file(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", type=_file, help="Database, such as app.db")


def _file(text: str) -> str:
    if text.lower().startswith(("postgres:", "postgresql:")):
        raise OncewardError(
            f"{redact_url(text)!r} is not a file: this command reads SQLite databases; "
            "use psql and pg_dump for PostgreSQL",
            code="bad_engine_url",
        )
    return text


def _inspect(arguments: argparse.Namespace) -> int:
    with Display(quiet=arguments.json) as display:
        summary = summarise(arguments.file, Clock().now_ms(), display.show)
    if arguments.json:
        return print_json(summary)
    _print_summary(summary)
    return 0


def _backup(arguments: argparse.Namespace) -> int:
    with Display(quiet=arguments.quiet) as display:
        copy = back_up(arguments.file, arguments.to, force=arguments.force, progress=display.show)
    if not arguments.quiet:
        print(
            f"Copied {copy.records:,} records ({decimal(copy.bytes)}) as of commit "
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
            records = f"{report.records:,} records, {report.last_seq:,} commits"
            print(f"{arguments.file} is intact: {records}")
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
        # The check itself reports other errors.


def _print_summary(summary: Summary) -> None:
    files = ", ".join(f"{name} {decimal(size)}" for name, size in summary.file_bytes.items())
    print_facts(
        [
            ("database", summary.path),
            ("id", f"{summary.database_id}, format {summary.format}"),
            ("owner", summary.owner or "none: no process has it open"),
            ("last commit", f"{summary.last_seq:,}"),
            ("table", f"{summary.table_records:,} records, as of commit {summary.folded_seq:,}"),
            ("journal", _journal_text(summary.journal)),
            ("expired", f"{summary.expired_records:,} records to be removed"),
            ("oldest due", _due_text(summary.oldest_due)),
            ("files", files),
        ]
    )
    print()
    users = [(f"{kind} (application)", amount) for kind, amount in summary.user.items()]
    amounts = [*summary.kinds.items(), *users, ("total", summary.total)]
    rows: list[list[Cell]] = [[kind, one.records, decimal(one.bytes)] for kind, one in amounts]
    print_table(("kind", "records", "bytes"), rows)


def _journal_text(journal: JournalSummary) -> str:
    files = f"{journal.segments} segments, {decimal(journal.bytes)}"
    if not journal.commits:
        return f"folded into the table ({files})" if journal.segments else "none"
    return (
        f"{journal.commits:,} commits not yet in the table, with changes of "
        f"{journal.records:,} records ({files})"
    )


def _due_text(due: Due | None) -> str:
    if due is None:
        return "none"
    try:
        when = datetime.fromtimestamp(due.due_ms / 1000, UTC).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        when = f"{due.due_ms} ms after 1970"  # beyond the year 9999
    distance = timedelta(seconds=abs(due.late_ms) // 1000)
    relation = f"{distance} late" if due.late_ms >= 0 else f"in {distance}"
    return f"{when} ({relation}), {due.partition} {due.sort}"
