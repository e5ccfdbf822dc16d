"""Client methods for keys, from `onceward.api.keys`. Written by `make generate`."""

import builtins
from collections.abc import Sequence

from onceward.api import keys as api
from onceward.api.arguments import as_list
from onceward.client.operations.base import Operations


class KeysOperations(Operations):
    """Operations on API keys that are created while the server runs."""

    async def list(self) -> builtins.list[api.ApiKeySummary]:
        """List API keys."""
        return (await self._transport.run(api.LIST)).keys

    async def create(self, name: str, scopes: Sequence[str]) -> api.CreatedKey:
        """Create an API key.

        - `name`: The name of the caller.
        - `scopes`: Scopes as in send:orders.* or all.
        """
        return await self._transport.run(
            api.CREATE, body=api.CreateKey(name=name, scopes=as_list("scopes", scopes))
        )

    async def delete(self, id: str) -> api.DeletedKey:
        """Delete an API key.

        With the last key of its name, its timers and endpoints are suspended.

        - `id`: The id of the key.

        Raises `BadInput` (no_such_key).
        """
        return await self._transport.run(api.DELETE, id)
