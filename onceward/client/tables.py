"""The namespace `client.tables`: the operations on tables, and a live place at one."""

from onceward.client.live_place import LivePlace
from onceward.client.operations.tables import TablesOperations
from onceward.client.rooms.live import Live


class Tables(TablesOperations):
    """Operations on tables. `Live.act` has the same over WebSocket."""

    async def follow(self, id: str, live: Live, *, user: str = "", lane: str = "") -> LivePlace:
        """Join a table and its room, and follow the place of a user there.

        `live` is a connection of the same user. Raises the errors of `join` and of `Live.join`.
        """
        room = await live.join(f"table:{id}")
        user = user or live.user
        place = await self.join(id, user=user, lane=lane)
        return LivePlace(self, room, place, self._transport.clock, user)
