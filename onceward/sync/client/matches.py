"""Synchronous classes. Written by `make generate` from `onceward.client.operations.matches`."""

from __future__ import annotations

from typing import Any

from onceward.api import matches as api
from onceward.client.operations.matches import MatchesOperations as AsyncMatchesOperations
from onceward.sync.bridge import Facade


class MatchesOperations(Facade[AsyncMatchesOperations]):
    """Operations on matches: the view of each player, and the log."""

    def get(self, id: str) -> api.MatchView:
        """Show a match as the caller sees it."""
        return self._portal.run(self._target.get(id))

    def log(self, id: str) -> list[dict[str, Any]]:
        """Show the log of a finished match."""
        return self._portal.run(self._target.log(id))

    def replay(self, id: str) -> list[api.MatchView]:
        """Replay a finished match move by move."""
        return self._portal.run(self._target.replay(id))
