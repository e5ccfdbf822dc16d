"""Client methods for server, from `onceward.api.server`. Written by `make generate`."""

from msgspec import UNSET, UnsetType

from onceward.api import server as api
from onceward.client.operations.base import Operations


class ServerOperations(Operations):
    """Operations on the server: health, activity, senders, settings and clock."""

    async def activity(self, *, after: int = 0) -> api.Activity:
        """Show the activity of the last seconds.

        - `after`: The member `last` of the previous response.
        """
        return await self._transport.run(api.ACTIVITY, query=api.SamplesQuery(after=after))

    async def overview(self) -> api.Overview:
        """Show the server at a glance."""
        return await self._transport.run(api.OVERVIEW)

    async def senders(self, *, queue: str | UnsetType = UNSET) -> list[api.Sender]:
        """List senders with their repeats and latency.

        - `queue`: The queue that the senders send to.
        """
        return (await self._transport.run(api.SENDERS, query=api.SendersQuery(queue=queue))).senders

    async def settings(self) -> list[api.ServerSetting]:
        """List the settings of the server."""
        return (await self._transport.run(api.SETTINGS)).settings

    async def clock(self) -> api.ServerClock:
        """Show the time of the server."""
        return await self._transport.run(api.CLOCK)

    async def confirm_clock(self) -> api.ServerClock:
        """Confirm a clock that is far ahead."""
        return await self._transport.run(api.CONFIRM_CLOCK)
