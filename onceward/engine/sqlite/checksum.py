"""Checksums of records in the table, to detect bit rot.

The upper half of a checksum covers only the key, which distinguishes damaged values from damaged
keys. The lower half covers the whole record.
"""

from collections.abc import Mapping
from typing import Any
from zlib import crc32

from onceward.engine.base import DAMAGED, Record
from onceward.errors import Damaged

_SIGN = 1 << 63  # SQLite's integers are signed


def checksum(
    partition: str, sort: str, value: bytes, version: object, expires_at_ms: int | None
) -> int:
    """The checksum of a record, as stored in the table."""
    of_key = crc32(f"{partition}\0{sort}".encode())
    return (of_key << 32 | crc32(value, crc32(b"%a %a" % (version, expires_at_ms), of_key))) - _SIGN


def verified(path: str, row: tuple[Any, ...]) -> Record:
    """The record of a row (partition, sort, checksum, value, version, expires_at_ms).

    Its value is `DAMAGED` if only the key verifies. Raises `Damaged` if the key does not verify.
    """
    partition, sort, stored, value, version, expires_at_ms = row
    try:
        text = value.encode()
        if stored == checksum(partition, sort, text, version, expires_at_ms):
            return Record((partition, sort), text, version, expires_at_ms)
    except (AttributeError, TypeError, UnicodeEncodeError):
        pass  # flipped bits can change the type of a column
    verify_key(path, partition, sort, stored)
    return Record((partition, sort), DAMAGED, version if type(version) is int else 0)


def verify_key(path: str, partition: object, sort: object, stored: object) -> None:
    """Raise `Damaged` if the key does not match the checksum."""
    found = f"{partition}\0{sort}".encode("utf-8", "surrogatepass")
    if type(stored) is not int or (stored + _SIGN) >> 32 != crc32(found):
        raise damaged_key(path, (partition, sort))


def damaged_key(path: str, key: object) -> Damaged:
    return Damaged(
        f"{path} is damaged: a record has the wrong key {key!r}. Nothing was changed. "
        "Run `onceward db check`, and restore a backup.",
        key=key,
    )


def meta_checksum(meta: Mapping[str, str]) -> str:
    """The checksum of all other rows of the table `meta`."""
    rows = sorted((name, value) for name, value in meta.items() if name != "checksum")
    return f"{crc32(repr(rows).encode()):08x}"
