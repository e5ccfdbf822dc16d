"""The format version of a database: the layout of records that its nodes read and write.

It is independent of the engine, which may have another version for its files or tables.
"""

import msgspec

from onceward.engine.base import Record
from onceward.engine.invariants import Lookup
from onceward.errors import CannotOpen
from onceward.json_values import decode
from onceward.keys import Key
from onceward.store.transaction import Transaction

FORMAT = 3
"""Increase it with every change after which older records would be misread."""
FORMAT_KEY: Key = ("config", "format")
SCHEDULE_KEY: Key = ("config", "schedule")
_UNVERSIONED = 0


class Config(msgspec.Struct):
    """The value of `SCHEDULE_KEY`, chosen when the database is created."""

    slots: int


class Format(msgspec.Struct):
    """The value of `FORMAT_KEY`."""

    version: int


async def admit_format(tx: Transaction) -> None:
    """Write the format version into a new database, and check it in an existing one.

    Raises `CannotOpen` (`unsupported_format`).
    """
    await tx.fetch([FORMAT_KEY, SCHEDULE_KEY])
    found = await tx.get(FORMAT_KEY, Format)
    if found is not None:
        _admit(found.version)
        return
    # Every node writes this record at its first start.
    if await tx.get(SCHEDULE_KEY) is not None:
        _admit(_UNVERSIONED)
    tx.put(FORMAT_KEY, Format(FORMAT))


def check_format(get: Lookup) -> None:
    """Check the version of a database that is only read. Raises `CannotOpen`
    (`unsupported_format`).
    """
    found = get(FORMAT_KEY)
    if found is not None:
        _admit(_version(found))
    elif get(SCHEDULE_KEY) is not None:
        _admit(_UNVERSIONED)


def _version(record: Record) -> int:
    found: Format = decode(record.value, Format, record.key)
    return found.version


def _admit(version: int) -> None:
    if version != FORMAT:
        raise CannotOpen(
            f"the database has format {version}, but this version of Onceward supports "
            f"format {FORMAT}. Nothing was changed. Start with a new database, or run the version "
            "that wrote this one and export your data.",
            code="unsupported_format",
            found=version,
            supported=FORMAT,
        )
