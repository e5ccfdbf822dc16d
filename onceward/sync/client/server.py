"""Synchronous classes. Written by `make generate` from `onceward.client.operations.server`."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from onceward.api import server as api
from onceward.client.operations.server import ServerOperations as AsyncServerOperations
from onceward.sync.bridge import Facade


class ServerOperations(Facade[AsyncServerOperations]):
    """Operations on the server: health, activity, senders, settings and clock."""

    def activity(self, *, after: int = 0) -> api.Activity:
        """Show the activity of the last seconds."""
        return self._portal.run(self._target.activity(after=after))

    def overview(self) -> api.Overview:
        """Show the server at a glance."""
        return self._portal.run(self._target.overview())

    def senders(self, *, queue: str | UnsetType = UNSET) -> list[api.Sender]:
        """List senders with their repeats and latency."""
        return self._portal.run(self._target.senders(queue=queue))

    def settings(self) -> list[api.ServerSetting]:
        """List the settings of the server."""
        return self._portal.run(self._target.settings())

    def clock(self) -> api.ServerClock:
        """Show the time of the server."""
        return self._portal.run(self._target.clock())

    def confirm_clock(self) -> api.ServerClock:
        """Confirm a clock that is far ahead."""
        return self._portal.run(self._target.confirm_clock())
