"""The verifier: searches stored data for corruption in the background."""

from onceward import limits
from onceward.engine.base import Engine
from onceward.errors import PASSING
from onceward.store import Store


class Verifier:
    """Verifies a database after it was opened and once a day.

    An error ends the node: records may be missing, and a missing idempotency key would be accepted
    again.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def needed(self) -> bool:
        """Whether the engine supports verification."""
        return type(self._store.engine).verify is not Engine.verify

    async def run(self) -> None:
        engine = self._store.engine
        while True:
            if engine.verified:
                await self._store.clock.sleep(limits.VERIFY_S)
            try:
                await engine.verify()
            except PASSING:
                await self._store.clock.sleep(limits.SWEEP_S)
