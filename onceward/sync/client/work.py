"""Synchronous classes. Written by `make generate` from `onceward.client.work`."""

from __future__ import annotations

from onceward.client.work import Worker as AsyncWorker
from onceward.sync.bridge import Facade


class Worker(Facade[AsyncWorker]):
    """Runs a handler on the jobs of a queue, several at once, until it is stopped."""

    def stop(self) -> None:
        """Stop claiming jobs. `run` returns when the running ones have ended."""
        return self._portal.enter(self._target.stop)

    def run(self) -> None:
        """Work until `stop`. If it is cancelled, other workers get the running jobs when the leases
        end."""
        return self._portal.run(self._target.run())
