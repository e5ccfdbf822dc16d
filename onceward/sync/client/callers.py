"""Synchronous classes. Written by `make generate` from `onceward.client.operations.callers`."""

from __future__ import annotations

from onceward.api import callers as api
from onceward.client.operations.callers import CallersOperations as AsyncCallersOperations
from onceward.sync.bridge import Facade


class CallersOperations(Facade[AsyncCallersOperations]):
    """Operations on suspended callers, whose timers and webhook calls are paused."""

    def suspended(self) -> list[api.SuspendedCaller]:
        """List suspended callers."""
        return self._portal.run(self._target.suspended())

    def suspend(self, id: str) -> api.SuspendedCaller:
        """Suspend the timers and calls of a caller."""
        return self._portal.run(self._target.suspend(id))

    def resume(self, id: str) -> api.ResumedCaller:
        """Resume a suspended caller."""
        return self._portal.run(self._target.resume(id))

    def transfer(self, id: str, to: str) -> api.TransferredCaller:
        """Transfer timers and endpoints to another caller."""
        return self._portal.run(self._target.transfer(id, to))
