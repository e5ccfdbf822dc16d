"""The format version of a database: the layout of records that its nodes read and write.

It is engine-neutral. An engine may have a version of its own for how it stores records.
"""

import msgspec

from onceward.engine.base import Record
from onceward.engine.invariants import Lookup
from onceward.errors import CannotOpen
from onceward.json_values import decode
from onceward.keys import Key
from onceward.store.transaction import Transaction

FORMAT = 2
"""Increase it with every change after which older records are misread."""
FORMAT_KEY: Key = ("config", "format")
SCHEDULE_KEY: Key = ("config", "schedule")
_UNVERSIONED = 0


class Config(msgspec.Struct):
    """The record under `SCHEDULE_KEY`: chosen when the database was created."""

    slots: int


class Format(msgspec.Struct):
    """The record under `FORMAT_KEY`."""

    version: int


async def admit_format(tx: Transaction) -> None:
    """Write the format version into a new database, and check it in any other.

    Raises `CannotOpen` (`unsupported_format`).
    """
    await tx.fetch([FORMAT_KEY, SCHEDULE_KEY])
    found = await tx.get(FORMAT_KEY, Format)
    if found is not None:
        _admit(found.version)
        return
    # Every node has written this one at its first start.
    if await tx.get(SCHEDULE_KEY) is not None:
        _admit(_UNVERSIONED)
    tx.put(FORMAT_KEY, Format(FORMAT))


def check_format(get: Lookup) -> None:
    """The same for a database that is only read. Raises `CannotOpen` (`unsupported_format`)."""
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
            f"the database has format {version}, and this version of Onceward reads and writes "
            f"format {FORMAT}. Nothing was changed. Start with a new database, or run the version "
            "that wrote this one and export what you need.",
            code="unsupported_format",
            found=version,
            supported=FORMAT,
        )
