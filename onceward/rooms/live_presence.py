"""Presences of a live room: updates, notifications and expiry.

Notifications are throttled and coalesced: only the last value of an entry is sent. A user whose
last connection was lost keeps its entries for a short time, so that a quick reconnect is not
visible to others.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from onceward import limits
from onceward.errors import BadInput, TooLarge
from onceward.rooms.frames import PresenceChanged, PresenceGone
from onceward.rooms.names import admit_name, encoded
from onceward.rooms.presence import Presences

if TYPE_CHECKING:
    from onceward.rooms.live import LiveRoom, Member


class LivePresence:
    """The presences of one room."""

    def __init__(self, room: "LiveRoom") -> None:
        self._room = room
        self._hub = room.hub
        self._presences = Presences()
        self._untold: dict[tuple[str, str], tuple[bool, Any, Member | None]] = {}
        """By name and user: whether it exists, its value, and its author."""
        self._told_ms = 0
        self._telling: asyncio.TimerHandle | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._ends_ms = 0
        self._absent: dict[str, asyncio.TimerHandle] = {}
        """Disconnected users that may return."""

    def set(self, member: "Member", name: str, value: Any, ttl_ms: int) -> None:
        """Set or renew the member's entry. Raises `BadInput`."""
        admit_name(name, "a presence's name")
        if not 0 < ttl_ms <= limits.PRESENCE_MS_MAX:
            raise BadInput(
                f"a presence must last 1 to {limits.PRESENCE_MS_MAX} ms, not {ttl_ms}",
                code="wrong_type",
            )
        size = len(encoded(value))
        if size > limits.PRESENCE_BYTES_MAX:
            raise TooLarge(
                f"a presence must have at most {limits.PRESENCE_BYTES_MAX} bytes, not {size}",
                code="value_too_large",
            )
        self._room.loaded.room.shapes.admit("presence", name, value)
        until_ms = self._hub.now_ms() + ttl_ms
        if self._presences.set(name, member.user, value, until_ms, size):
            self._tell(name, member.user, member, there=True, value=value)
        self._watch(until_ms)

    def remove(self, member: "Member", name: str) -> None:
        """Remove the member's entry if it exists."""
        if self._presences.remove(name, member.user):
            self._tell(name, member.user, member)

    def remove_name(self, name: str) -> bool:
        """Remove a presence of all users; return whether it existed."""
        users = self._presences.remove_name(name)
        for user in users:
            self._tell(name, user)
        return bool(users)

    def whole(self) -> dict[str, dict[str, Any]]:
        """All values, by name and user."""
        return self._presences.whole()

    def came(self, user: str) -> None:
        """Cancel the removal of a user's entries after a connection."""
        absent = self._absent.pop(user, None)
        if absent is not None:
            absent.cancel()

    def left(self, user: str, *, lost: bool) -> None:
        """Remove a user's entries after its last connection, after a delay if it was lost."""
        if self._room.has_user(user):
            return
        if not lost:
            self._gone(user)
        elif user not in self._absent:
            self._absent[user] = self._hub.later(limits.ROOM_GRACE_S, self._gone, user)

    def close(self) -> None:
        """Stop all timers."""
        for timer in (self._telling, self._ending, *self._absent.values()):
            if timer is not None:
                timer.cancel()
        self._absent.clear()

    def __bool__(self) -> bool:
        return bool(self._presences)

    def _gone(self, user: str) -> None:
        self._absent.pop(user, None)
        for name in self._presences.remove_user(user):
            self._tell(name, user)
        self._hub.may_rest(self._room)

    def _watch(self, until_ms: int) -> None:
        """Schedule the removal of expired entries."""
        if self._ending is None or until_ms < self._ends_ms:
            if self._ending is not None:
                self._ending.cancel()
            self._ends_ms = until_ms
            left_s = (until_ms - self._hub.now_ms()) / 1000
            self._ending = self._hub.later(min(left_s, limits.CLOCK_SLEEP_S_MAX), self._expire)

    def _expire(self) -> None:
        self._ending = None
        for name, user in self._presences.expire(self._hub.now_ms()):
            self._tell(name, user)
        next_ms = self._presences.next_ms
        if next_ms is not None:
            self._watch(next_ms)
        else:
            self._hub.may_rest(self._room)

    def _tell(
        self,
        name: str,
        user: str,
        author: "Member | None" = None,
        *,
        there: bool = False,
        value: Any = None,
    ) -> None:
        # Moved to the end, so that notifications are in the order of changes.
        self._untold.pop((name, user), None)
        self._untold[name, user] = there, value, author
        if self._telling is None:
            wait_ms = max(0, self._told_ms + limits.PRESENCE_PAUSE_MS - self._hub.now_ms())
            if wait_ms:
                self._telling = self._hub.later(wait_ms / 1000, self.tell)
            else:
                self.tell()

    def tell(self) -> None:
        """Send pending changes to the members."""
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        self._told_ms = self._hub.now_ms()
        untold, self._untold = self._untold, {}
        for (name, user), (there, value, author) in untold.items():
            if there:
                self._room.say(PresenceChanged(self._room.id, name, user, value), author)
            else:
                self._room.say(PresenceGone(self._room.id, name, user), author)
