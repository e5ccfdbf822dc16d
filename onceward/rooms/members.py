"""Members of a live room: joins, leaves and their notifications.

Where many come at once, each of them would be told of all the others one by one. So those who are
there are told at most so often, of all at once; and at once where little happens, or before
anything else is said in the room. Whoever has come meanwhile is told only of those who came or
went after it.

In a very large room not all are told by name: if they were, each one more would cost as much as
all before. The first so many are, and when one of them goes, the next in turn; of the others it
is told now and then how many there are.
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
    """Of one room."""

    def __init__(self, room: "LiveRoom") -> None:
        self._room = room
        self._untold: list[bytes] = []
        self._newcomers: dict[Session, int] = {}
        """With the first of what is not told yet that concerns each of them."""
        self._told_ms = 0
        self._telling: asyncio.TimerHandle | None = None
        self._named: dict[str, RoomMember] = {}
        """Who is told by name, by id …"""
        self._unnamed: dict[str, RoomMember] = {}
        """… and who is not, the first first."""
        self._counted_ms = 0
        self._counting: asyncio.TimerHandle | None = None

    def came(self, member: "Member") -> None:
        """A member has come; it is among the readers already."""
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
        """A member has gone; it is no reader any more."""
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
        """Whom a member is told of when it comes: itself, too."""
        named = list(self._named.values())
        return named if member.id in self._named else [*named, self._unnamed[member.id]]

    @property
    def count(self) -> int:
        """How many there are, if not all of them are told by name; else 0."""
        return len(self._named) + len(self._unnamed) if self._unnamed else 0

    def tell(self) -> None:
        """Tell of those who came and went until now, if there are any."""
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
        """Tell nothing by itself."""
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
