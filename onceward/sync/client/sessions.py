"""Synchronous classes. Written by `make generate` from `onceward.client.operations.sessions`."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, UnsetType

from onceward.api import sessions as api
from onceward.client.operations.sessions import SessionsOperations as AsyncSessionsOperations
from onceward.sync.bridge import Facade


class SessionsOperations(Facade[AsyncSessionsOperations]):
    """Operations on console sessions."""

    def create_link(self) -> str:
        """Create a link that signs in once."""
        return self._portal.run(self._target.create_link())

    def list(self, *, everyone: bool = False, after: str = "") -> api.SessionPage:
        """List sessions at the console."""
        return self._portal.run(self._target.list(everyone=everyone, after=after))

    def iterate(self, *, everyone: bool = False, after: str = "") -> Iterator[api.SessionSummary]:
        """Iterate over the entries of all pages of `list`."""
        return self._portal.iterate(self._target.iterate(everyone=everyone, after=after))

    def revoke(self, id: str, *, caller: str | UnsetType = UNSET) -> int:
        """Revoke a session."""
        return self._portal.run(self._target.revoke(id, caller=caller))

    def revoke_all(self, *, caller: str | UnsetType = UNSET) -> int:
        """Revoke all sessions of a caller."""
        return self._portal.run(self._target.revoke_all(caller=caller))
