"""An outbox in memory: rows that a test commits, with ids that come back and calls that fail."""

import asyncio
import json
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import Any

from onceward.errors import Unavailable
from onceward.sql.messages import Row
from onceward.sql.sources import Removal


class Table:
    """A `Source` for several nodes: make one `Reader` for each."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.failed: dict[str, str] = {}
        self.emptied = asyncio.Event()

    def add(
        self,
        queue: str,
        body: Any = None,
        *,
        id_: int | None = None,
        message: str = "",
        key: str | None = None,
        order_key: str | None = None,
        raw: str | None = None,
        **options: Any,
    ) -> Row:
        """Commit a row. Ids start at 1 again when the table is empty, as in SQLite."""
        number = max(self.rows, default=0) + 1 if id_ is None else id_
        message = message or str(uuid.uuid4())
        text = json.dumps(body) if raw is None else raw
        row = Row(number, message, queue, text, key, order_key, json.dumps(options), 0)
        self.rows[number] = row
        self.emptied.clear()
        return row


class Reader:
    """One node's connection to a table."""

    name = "table"

    def __init__(self, table: Table) -> None:
        self.table = table
        self.before_remove: Callable[[], None] = lambda: None
        """May raise, so that a deletion is lost."""
        self.reads = 0

    async def read(self, without: Collection[str], limit: int) -> list[Row]:
        await asyncio.sleep(0)
        self.reads += 1
        return [row for _, row in sorted(self.table.rows.items()) if row.queue not in without][
            :limit
        ]

    async def remove(self, rows: Sequence[Removal]) -> None:
        self.before_remove()
        for id_, message, reason in rows:
            row = self.table.rows.get(id_)
            if row is not None and row.message == message:
                del self.table.rows[id_]
                if reason is not None:
                    self.table.failed[message] = reason
        if not self.table.rows:
            self.table.emptied.set()

    async def migrate(self, *, notify: bool) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        pass


def lost() -> None:
    raise Unavailable("the connection was lost")
