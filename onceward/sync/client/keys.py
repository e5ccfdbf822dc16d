"""Synchronous classes. Written by `make generate` from `onceward.client.operations.keys`."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from onceward.api import keys as api
from onceward.client.operations.keys import KeysOperations as AsyncKeysOperations
from onceward.sync.bridge import Facade


class KeysOperations(Facade[AsyncKeysOperations]):
    """Operations on API keys that are created while the server runs."""

    def list(self) -> builtins.list[api.ApiKeySummary]:
        """List API keys."""
        return self._portal.run(self._target.list())

    def create(self, name: str, scopes: Sequence[str]) -> api.CreatedKey:
        """Create an API key."""
        return self._portal.run(self._target.create(name, scopes))

    def delete(self, id: str) -> api.DeletedKey:
        """Delete an API key."""
        return self._portal.run(self._target.delete(id))
