"""Client methods for callers, from `onceward.api.callers`. Written by `make generate`."""

from onceward.api import callers as api
from onceward.client.operations.base import Operations


class CallersOperations(Operations):
    """Operations on suspended callers, whose timers and webhook calls are paused."""

    async def suspended(self) -> list[api.SuspendedCaller]:
        """List suspended callers."""
        return (await self._transport.run(api.LIST)).callers

    async def suspend(self, id: str) -> api.SuspendedCaller:
        """Suspend the timers and calls of a caller.

        - `id`: The id of the caller.

        Raises `BadInput` (bad_name).
        """
        return await self._transport.run(api.SUSPEND, id)

    async def resume(self, id: str) -> api.ResumedCaller:
        """Resume a suspended caller.

        - `id`: The id of the caller.

        Raises `BadInput` (bad_name).
        """
        return await self._transport.run(api.RESUME, id)

    async def transfer(self, id: str, to: str) -> api.TransferredCaller:
        """Transfer timers and endpoints to another caller.

        - `id`: The id of the caller.
        - `to`: The id of a caller, as in `key:billing`.

        Raises `BadInput` (bad_name).
        """
        return await self._transport.run(api.TRANSFER, id, body=api.TransferCaller(to=to))
