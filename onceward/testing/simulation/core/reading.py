"""The read methods of a transaction, chosen at random."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from onceward.keys import Key
from onceward.store.transaction import Transaction

WAYS: Final = ("one by one", "together", "at once", "twice at once")


async def read(tx: Transaction, keys: Sequence[Key], way: str) -> list[Any]:
    """The values of some keys, read in one of the `WAYS`."""
    if way == "together":
        return await tx.get_many(keys)
    if way == "at once":
        return await asyncio.gather(*[tx.get(key) for key in keys])
    if way == "twice at once":
        values = await asyncio.gather(*[tx.get(key) for key in keys], tx.get_many(keys))
        return values[: len(keys)]
    return [await tx.get(key) for key in keys]


async def find(tx: Transaction, key: Key) -> Any:
    """The value of a key by an unchecked scan: valid for one record, once durable."""
    rows = await tx.scan(key[0], start=key[1], limit=1)
    return rows[0].value if rows and rows[0].key == key else None
