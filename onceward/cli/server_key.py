"""Commands for the server key, which signs sessions and encrypts stored secrets."""

import argparse
import asyncio

from onceward import engine as engines
from onceward.cli.parser import Parser
from onceward.errors import BadInput
from onceward.maintenance.key_source import KeySource
from onceward.redaction import redact_url
from onceward.server_key import new_key
from onceward.store import Store
from onceward.web.settings import FILE, load


def fill(parser: Parser) -> None:
    """Add the commands of `onceward server-key`."""
    parser.description = (
        "The server key signs sessions, and encrypts the secrets of endpoints and the headers of "
        "timers. It is not in the database, and not in backups."
    )
    parser.add_command("new", "Print a new server key", _fill_new)
    parser.add_command("replace", "Replace a server key that is lost", _fill_replace)


def _fill_new(parser: Parser) -> None:
    parser.description = (
        "Print a new server key. Write it to a file that only the server can read, and set "
        "ONCEWARD_SERVER_KEY_FILE to its path. To replace a key, write the new one above the old "
        "one: the first one encrypts, all of them decrypt."
    )
    parser.epilog = "example: (umask 077; onceward server-key new > /etc/onceward/server.key)"
    parser.set_defaults(run=_new)


def _fill_replace(parser: Parser) -> None:
    parser.description = (
        "Use a database with the server key of these settings, if the key that it was used with is "
        "lost. All sessions end. Endpoints whose secrets cannot be decrypted are suspended until "
        "their secrets are set again."
    )
    parser.epilog = "example: onceward server-key replace --database postgresql://db/app"
    help_ = f"File with settings [{FILE}, if it exists]"
    parser.add_argument("--config", metavar="FILE", help=help_)
    parser.add_argument("--database", metavar="URL", help="Database URL")
    parser.add_argument("--server-key-file", metavar="FILE", help="File with the server key")
    parser.set_defaults(run=_replace)


def _new(arguments: argparse.Namespace) -> int:
    print(new_key())
    return 0


def _replace(arguments: argparse.Namespace) -> int:
    from onceward.web.application import server_keys_of  # here: it takes long to load

    flags = {"database": arguments.database, "server_key_file": arguments.server_key_file}
    settings, _ = load(flags, file=arguments.config)
    engine = engines.create(settings.database)
    if engine.own_key() is not None:
        raise BadInput("a database in memory has its own server key; name another database")

    async def run() -> list[str]:
        async with engine:
            store = Store(engine)
            await KeySource(store, server_keys_of(settings)).replace()
            return list(store.server_keys.checks)

    first, *_ = asyncio.run(run())
    print(f"{redact_url(settings.database)} now uses the server key {first}")
    return 0
