"""Commands for the server key, which signs sessions and encrypts stored secrets."""

import argparse
import asyncio
from typing import Any

from onceward import engine as engines
from onceward.errors import BadInput
from onceward.maintenance.key_source import KeySource
from onceward.redaction import redact_url
from onceward.server_key import new_key
from onceward.store import Store
from onceward.web.settings import FILE, load


def add_commands(commands: Any) -> None:
    """Add them to the parser."""
    command = commands.add_parser(
        "server-key",
        help="make or replace the server key",
        description="The server key signs sessions and encrypts the secrets of endpoints and the "
        "headers of timers. It is not in the database, and not in backups.",
    )
    actions = command.add_subparsers(metavar="ACTION", required=True)
    new = actions.add_parser(
        "new",
        help="print a new key",
        description="Print a new server key. Put it into a file that only the server can read, and "
        "name that by ONCEWARD_SERVER_KEY_FILE. To replace a key, write the new one above the old "
        "one: the first encrypts, all decrypt.",
        epilog="example: (umask 077; onceward server-key new > /etc/onceward/server.key)",
    )
    new.set_defaults(run=_new)
    replace = actions.add_parser(
        "replace",
        help="go on without a lost server key",
        description="Use a database with the server key of these settings, though it was used with "
        "another one that is lost. Sessions end, and endpoints whose secrets cannot be read are "
        "suspended until they are written again.",
        epilog="example: onceward server-key replace --database postgresql://db/app",
    )
    replace.add_argument("--config", help=f"the file of settings ({FILE}, if it is there)")
    replace.add_argument("--database", help="the database URL")
    replace.add_argument("--server-key-file", help="the file with the server key")
    replace.set_defaults(run=_replace)


def _new(arguments: argparse.Namespace) -> int:
    print(new_key())
    return 0


def _replace(arguments: argparse.Namespace) -> int:
    from onceward.web.serve import server_keys_of  # here: it takes long to load

    flags = {"database": arguments.database, "server_key_file": arguments.server_key_file}
    settings, _ = load(flags, file=arguments.config)
    engine = engines.create(settings.database)
    if engine.own_key() is not None:
        raise BadInput("what is in memory alone has a server key of its own")

    async def run() -> list[str]:
        async with engine:
            store = Store(engine)
            await KeySource(store, server_keys_of(settings)).replace()
            return list(store.server_keys.checks)

    first, *_ = asyncio.run(run())
    print(f"{redact_url(settings.database)} is used with the server key {first} from now on")
    return 0
