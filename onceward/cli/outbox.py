"""Commands for outboxes: tables in databases of applications."""

import argparse
import asyncio

from onceward.cli.parser import Parser
from onceward.sql.schema import DIALECTS, statements
from onceward.sql.sources import source_of


def fill(parser: Parser) -> None:
    """Add the commands of `onceward outbox`."""
    parser.description = (
        "The outbox is a table in the database of your application. Your transactions add messages "
        "to it, and Onceward turns each committed one into a job."
    )
    parser.add_command("migrate", "Create the outbox in a database", _fill_migrate)
    parser.add_command("sql", "Print the SQL statements of the migration", _fill_sql)


def _fill_migrate(parser: Parser) -> None:
    parser.description = (
        "Create the outbox in the database of your application, or bring it up to date. Existing "
        "rows stay. Safe to repeat."
    )
    parser.epilog = "example: onceward outbox migrate postgresql://shop@db/shop"
    help_ = "Database: postgresql://… or sqlite:///shop.db"
    parser.add_argument("url", metavar="URL", help=help_)
    _add_notify(parser)
    parser.set_defaults(run=_migrate)


def _fill_sql(parser: Parser) -> None:
    parser.description = "Print the SQL statements that `migrate` runs, for your migration tool."
    parser.epilog = "example: onceward outbox sql postgresql > migrations/7_outbox.sql"
    parser.add_argument("database", metavar="DATABASE", help=" or ".join(DIALECTS))
    _add_notify(parser)
    parser.set_defaults(run=_sql)


def _add_notify(parser: Parser) -> None:
    help_ = "Add a trigger that wakes the server with NOTIFY"
    parser.add_argument("--notify", action="store_true", help=help_)


def _migrate(arguments: argparse.Namespace) -> int:
    source = source_of(arguments.url)

    async def run() -> None:
        try:
            await source.migrate(notify=arguments.notify)
        finally:
            await source.close()

    asyncio.run(run())
    print(f"{source.name} has an outbox")
    return 0


def _sql(arguments: argparse.Namespace) -> int:
    print("\n\n".join(statements(arguments.database, notify=arguments.notify)))
    return 0
