"""A player's live place at a table, computed from the table's room.

A waiter knows its number. The room has the count of waiters that left each lane, and the numbers
of the last ones: for each lower number that left, the position decreases by one. The client
requests the place from the server only if more waiters left than the room lists, or if the role
of the user changes.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from onceward.api.tables import Place
from onceward.client.operations.tables import TablesOperations
from onceward.client.rooms.room import Room
from onceward.clock import Clock
from onceward.errors import OncewardError

_log = logging.getLogger("onceward.client")


class LivePlace:
    """The place of a user at a table, kept current by the table's room."""

    def __init__(
        self, tables: TablesOperations, room: Room, place: Place, clock: Clock, user: str
    ) -> None:
        self.place = place
        """The current place."""
        self._tables = tables
        self._room = room
        self._clock = clock
        self._user = user
        self._hooks: list[Callable[[Place], object]] = []
        self._asking: asyncio.Task[None] | None = None
        self._again = False
        self._came = 0
        """The count of all entries of the waitlist when the place was requested."""
        self._ends = [
            room.map(name).subscribe(self._changed)
            for name in ("line", "seats", "table", "waitlist")
        ]
        self._changed()

    def subscribe(self, hook: Callable[[Place], object]) -> Callable[[], None]:
        """Call `hook(place)` after each change. Returns a function that unsubscribes."""
        self._hooks.append(hook)
        return lambda: self._hooks.remove(hook) if hook in self._hooks else None

    def close(self) -> None:
        """Stop following. The user keeps the place, and the room stays open. Idempotent."""
        for end in self._ends:
            end()
        self._ends = []
        self._hooks.clear()
        if self._asking is not None:
            self._asking.cancel()

    @property
    def wait_ms(self) -> int:
        """The estimated wait."""
        state: dict[str, int] = self._room.map("table").get("state") or {}
        share_ms = state.get("pace_ms", 0)
        now_ms = state.get("paused_ms", 0) or self._clock.now_ms()
        passed_ms = now_ms - state.get("paced_ms", 0)
        return self.place.ahead * share_ms + max(share_ms - passed_ms, 0)

    def _changed(self, *_: Any) -> None:
        place = self._counted()
        if place is None:
            self._ask()
        elif place != self.place:
            self._tell(place)

    def _counted(self) -> Place | None:
        """The place computed from the room; None if it must be requested."""
        place = self.place
        seats = self._room.map("seats").whole()
        seated = {seat["user"]: marker for marker, seat in seats.items() if seat is not None}
        if place.role == "seated":
            return place if seated.get(place.user) == place.marker else None
        if place.role != "waiting":
            return None if place.user in seated or self._may_wait() else place
        lanes = self._room.map("line").whole()
        lane = lanes.get(place.lane)
        if lane is None or place.user in seated:
            return None
        since, told = lane["went"] - place.went, lane["gone"]
        if not 0 <= since <= len(told):
            return None
        went = told[len(told) - since :]
        if place.number in went:
            return None
        position = place.position - sum(number < place.number for number in went)
        before = sum(
            other["waiting"] * other["size"]
            for other in lanes.values()
            if other["priority"] < lane["priority"] and other["tier"] == lane["tier"]
        )
        ahead = (position - 1) * lane["size"] + before
        alike = (lane["priority"], lane["tier"])
        if any(
            other["waiting"] and key != place.lane and (other["priority"], other["tier"]) == alike
            for key, other in lanes.items()
        ):
            # Parties of other sizes are in between; the server has sent the total.
            ahead = max(place.ahead - (place.position - position) * lane["size"], 0)
        waiting = (self._room.map("table").get("state") or {}).get("waiting", place.waiting)
        return msgspec.structs.replace(
            place,
            position=position,
            went=lane["went"],
            ahead=ahead,
            waiting=waiting,
        )

    def _may_wait(self) -> bool:
        """Whether the user may have joined the waitlist through another connection since the last
        request. Shown names answer that, unless more users wait."""
        state = self._room.map("table").get("state") or {}
        if state.get("came", 0) == self._came:
            return False
        shown = self._room.map("waitlist").whole().values()
        if any(self.place.user in one.get("users", ()) for one in shown):
            return True
        named = sum(len(one.get("users", ())) for one in shown)
        return bool(named < state.get("waiting", 0))

    def _ask(self) -> None:
        self._again = True
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._asks(), name="onceward-live-place")

    async def _asks(self) -> None:
        while self._again:
            self._again = False
            self._came = (self._room.map("table").get("state") or {}).get("came", 0)
            try:
                found = await self._tables.place(self.place.table, user=self._user)
            except OncewardError as error:
                _log.warning("cannot get the place at %s: %s", self.place.table, error)
                return
            # Newer updates of the room are applied to it.
            self.place, before = found, self.place
            counted = self._counted()
            if counted is not None and counted != before:
                self._tell(counted)

    def _tell(self, place: Place) -> None:
        self.place = place
        self.place.wait_ms = self.wait_ms if place.role == "waiting" else 0
        for hook in list(self._hooks):
            try:
                hook(place)
            except Exception:
                _log.exception("a subscriber of a place failed")
