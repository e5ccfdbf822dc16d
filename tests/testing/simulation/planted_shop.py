"""Bugs planted into SQL outboxes and SQL steps, each of a kind that the scenario must find."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from onceward.schedule import transitions
from onceward.sql import server
from onceward.sql.messages import Row
from onceward.testing.simulation.shop import Shop, ShopDatabase, ShopSource
from tests.testing.planted import Bug, search


@contextmanager
def key_from_the_row_id() -> Iterator[None]:
    """The idempotency key is the id of the row, which comes back."""
    real = server.Drainer._arguments

    def arguments(self: Any, row: Row) -> Any:
        return real(self, row._replace(message=f"row {row.id}"))

    with patch.object(server.Drainer, "_arguments", arguments):
        yield


@contextmanager
def cursor_over_ids() -> Iterator[None]:
    """Only rows behind the last accepted one are read."""
    real = ShopSource.read
    last: dict[Any, int] = {}

    async def read(self: Any, without: Collection[str], limit: int) -> list[Row]:
        rows = [row for row in await real(self, without, limit) if row.id > last.get(self._shop, 0)]
        last[self._shop] = max([row.id for row in rows], default=last.get(self._shop, 0))
        return rows

    with patch.object(ShopSource, "read", read):
        yield


@contextmanager
def rows_deleted_with_the_job() -> Iterator[None]:
    """The records of steps are deleted when their job ends, even if it has failed."""
    shops: list[ShopDatabase] = []
    real_init, real_end = ShopDatabase.__init__, transitions.Schedule._end

    def init(self: Any, **options: Any) -> None:
        real_init(self, **options)
        shops.append(self)

    async def end(self: Any, tx: Any, id_: str, *args: Any, **options: Any) -> None:
        await real_end(self, tx, id_, *args, **options)
        for table in ("onceward_step", "onceward_step_fence"):
            shops[-1].tables.execute(f"DELETE FROM {table} WHERE job = ?", (id_,))
        shops[-1].tables.commit()

    with (
        patch.object(ShopDatabase, "__init__", init),
        patch.object(transitions.Schedule, "_end", end),
    ):
        yield


@contextmanager
def no_fence() -> Iterator[None]:
    """The commit that accepts rows does not check the lease."""
    real = server.Drainer._accept

    async def accept(self: Any, tx: Any, rows: Any) -> Any:
        held = await tx.get(self._key, server.Drain)
        token, self._token = self._token, held.token
        try:
            return await real(self, tx, rows)
        finally:
            self._token = token

    with patch.object(server.Drainer, "_accept", accept):
        yield


@contextmanager
def accepted_rows_not_recorded() -> Iterator[None]:
    """Rows whose deletion was lost are accepted again."""
    real = server.Drainer._write

    def write(self: Any, tx: Any, accepted: Any) -> None:
        real(self, tx, [])

    with patch.object(server.Drainer, "_write", write):
        yield


@contextmanager
def ids_before_locks() -> Iterator[None]:
    """The id is drawn before the transaction waits for its order key."""
    real = ShopDatabase.transaction

    async def transaction(self: Any, body: str, order_key: str | None, random: Any) -> bool:
        self._locks[order_key or body] = _Unlocked()
        return await real(self, body, order_key, random)

    with patch.object(ShopDatabase, "transaction", transaction):
        yield


class _Unlocked:
    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *args: object) -> None:
        pass


PLANTED: dict[str, Bug] = {
    "the key is the row id": Bug(Shop, ("row lost", "row failed"), 14, key_from_the_row_id),
    "a cursor over ids": Bug(Shop, ("row lost", "stuck", "never ends"), 1, cursor_over_ids),
    "rows deleted with the job": Bug(Shop, ("step twice",), 68, rows_deleted_with_the_job),
    "a drainer without fence": Bug(Shop, ("row twice",), 245, no_fence),
    "accepted rows are not recorded": Bug(Shop, ("row twice",), 206, accepted_rows_not_recorded),
    "ids are drawn before locks": Bug(Shop, ("order",), 1, ids_before_locks),
}


if __name__ == "__main__":
    search(PLANTED)
