"""The live view of a table: a read-only room, updated by the table's commits."""

from onceward.api import room_changes as op
from onceward.errors import NoSuchRoom
from onceward.rooms.names import TABLE_ROOMS
from onceward.rooms.part import Rooms
from onceward.store.transaction import Transaction
from onceward.tables import Change


def room_of(table: str) -> str:
    """The name of the room with the live view of a table."""
    return TABLE_ROOMS + table


class LiveView:
    """Publishes tables in rooms, as the maps `seats`, `table`, `line`, `waitlist` and `opened`."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    async def open(self, tx: Transaction, table: str) -> None:
        await self.close(tx, table)  # the view of a closed table with the same id
        await self._rooms.create(tx, room_of(table), meta={"table": table})

    async def show(self, tx: Transaction, table: str, changes: list[Change]) -> None:
        await self._rooms.change(tx, room_of(table), list(map(_operation, changes)))

    async def close(self, tx: Transaction, table: str) -> None:
        try:
            await self._rooms.remove(tx, room_of(table))
        except NoSuchRoom:
            pass


def _operation(change: Change) -> op.RoomOperation:
    if not change.gone:
        return op.MapSet(change.map, change.key, change.value)
    return op.MapDelete(change.map, change.key) if change.key else op.MapDrop(change.map)


def table_of(room: str) -> str | None:
    """The table of a live view, or None for other rooms."""
    table = room.removeprefix(TABLE_ROOMS)
    return None if table == room else table
