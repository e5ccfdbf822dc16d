"""Members of a live room: joins, leaves and their notifications.

If many members join at once, sending each join to all others separately would be expensive.
Notifications are therefore throttled and batched. They are sent immediately if there are few, or
before other messages of the room. A new member receives only joins and leaves after its own.

A very large room does not list all members by name, because each further one would cost as much as
all before. It lists the first ones, and replaces one that leaves by the next. The number of all
members is sent at intervals.
"""

import asyncio
from typing import TYPE_CHECKING

from onceward import limits
from onceward.api.rooms import RoomMember
from onceward.rooms.frames import Came, Crowd, Went, encode
from onceward.rooms.wire import frame

if TYPE_CHECKING:
    from onceward.rooms.live import LiveRoom, Member
    from onceward.rooms.session import Session


class Members:
    """The members of one room."""

    def __init__(self, room: "LiveRoom") -> None:
        self._room = room
        self._untold: list[bytes] = []
        self._newcomers: dict[Session, int] = {}
        """New members, with the index of the first pending notification that concerns them."""
        self._told_ms = 0
        self._telling: asyncio.TimerHandle | None = None
        self._named: dict[str, RoomMember] = {}
        """Members listed by name, by id."""
        self._unnamed: dict[str, RoomMember] = {}
        """Members not listed by name, in order of joining."""
        self._counted_ms = 0
        self._counting: asyncio.TimerHandle | None = None

    def came(self, member: "Member") -> None:
        """Add a member, which is among the readers already."""
        one = RoomMember(member.id, member.user)
        if len(self._named) < limits.ROOM_NAMED_MAX:
            self._name(one)
        else:
            self._unnamed[one.id] = one
            self._count_soon()
        if self._untold:
            self._newcomers[member.session] = len(self._untold)
            self._tell_soon()

    def went(self, member: "Member") -> None:
        """Remove a member, which is no reader then."""
        self._newcomers.pop(member.session, None)
        if self._unnamed:
            self._count_soon()
        if self._unnamed.pop(member.id, None) is not None:
            return
        del self._named[member.id]
        self._untold.append(frame(encode(Went(self._room.id, member.id))))
        if self._unnamed:
            self._name(self._unnamed.pop(next(iter(self._unnamed))))
        self._tell_soon()

    def told_to(self, member: "Member") -> list[RoomMember]:
        """The members that a new member receives, including itself."""
        named = list(self._named.values())
        return named if member.id in self._named else [*named, self._unnamed[member.id]]

    @property
    def count(self) -> int:
        """The number of members if some are not listed by name; otherwise 0."""
        return len(self._named) + len(self._unnamed) if self._unnamed else 0

    def tell(self) -> None:
        """Send pending joins and leaves."""
        if not self._untold:
            return
        self._stop_telling()
        self._told_ms = self._room.hub.now_ms()
        untold, self._untold = self._untold, []
        newcomers, self._newcomers = self._newcomers, {}
        news = self._room.news
        news.add(b"".join(untold))
        for session, first in newcomers.items():
            news.replace(session, b"".join(untold[first:]))
        self._room.hub.has_news(self._room)

    def close(self) -> None:
        """Stop all timers."""
        self._stop_telling()
        if self._counting is not None:
            self._counting.cancel()
            self._counting = None

    def _stop_telling(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None

    def _name(self, one: RoomMember) -> None:
        self._named[one.id] = one
        self._untold.append(frame(encode(Came(self._room.id, one.id, one.user))))

    def _tell_soon(self) -> None:
        if self._telling is not None:
            return
        hub = self._room.hub
        wait_ms = max(0, self._told_ms + limits.PRESENCE_PAUSE_MS - hub.now_ms())
        if wait_ms:
            self._telling = hub.later(wait_ms / 1000, self.tell)
        else:
            self.tell()

    def _count_soon(self) -> None:
        if self._counting is None:
            hub = self._room.hub
            wait_ms = max(0, self._counted_ms + limits.ROOM_COUNT_MS - hub.now_ms())
            self._counting = hub.later(wait_ms / 1000, self._tell_count)

    def _tell_count(self) -> None:
        self._counting = None
        self._counted_ms = self._room.hub.now_ms()
        self._room.say(Crowd(self._room.id, self.count))
