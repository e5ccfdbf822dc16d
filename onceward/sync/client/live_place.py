"""Synchronous classes. Written by `make generate` from `onceward.client.live_place`."""

from __future__ import annotations

from collections.abc import Callable

from onceward.api.tables import Place
from onceward.client.live_place import LivePlace as AsyncLivePlace
from onceward.sync.bridge import Facade


class LivePlace(Facade[AsyncLivePlace]):
    """The place of a user at a table, kept current by the table's room."""

    @property
    def place(self) -> Place:
        """The current place."""
        return self._target.place

    def subscribe(self, hook: Callable[[Place], object]) -> Callable[[], None]:
        """Call `hook(place)` after each change. Returns a function that unsubscribes."""
        return self._portal.function(
            self._portal.enter(self._target.subscribe, self._portal.hook(hook))
        )

    def close(self) -> None:
        """Stop following. The user keeps the place, and the room stays open. Idempotent."""
        return self._portal.enter(self._target.close)

    @property
    def wait_ms(self) -> int:
        """The estimated wait."""
        return self._portal.enter(lambda: self._target.wait_ms)
