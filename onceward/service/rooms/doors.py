"""Who comes into a live room and who goes, as others are told of it.

Where many come at once, each of them would be told of all the others one by one. So those who are
there are told at most so often, of all at once; and at once where little happens, or before
anything else is said in the room. Whoever has come meanwhile is told only of those who came or
went after it.
"""

import asyncio
from typing import TYPE_CHECKING

from onceward import limits
from onceward.parts.rooms.frames import Came, Went, encode
from onceward.service.rooms.wire import frame

if TYPE_CHECKING:
    from onceward.service.rooms.live import LiveRoom, Member
    from onceward.service.rooms.session import Session


class Doors:
    """Of one room."""

    def __init__(self, room: "LiveRoom") -> None:
        self._room = room
        self._untold: list[bytes] = []
        self._newcomers: dict[Session, int] = {}
        """With the first of what is not told yet that concerns each of them."""
        self._told_ms = 0
        self._telling: asyncio.TimerHandle | None = None

    def came(self, member: "Member") -> None:
        """A member has come; it is among the readers already."""
        self._untold.append(frame(encode(Came(self._room.id, member.id, member.user))))
        self._newcomers[member.session] = len(self._untold)
        self._tell_soon()

    def went(self, member: "Member") -> None:
        """A member has gone; it is no reader any more."""
        self._newcomers.pop(member.session, None)
        self._untold.append(frame(encode(Went(self._room.id, member.id))))
        self._tell_soon()

    def tell(self) -> None:
        """Tell of those who came and went until now, if there are any."""
        if not self._untold:
            return
        self.close()
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
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None

    def _tell_soon(self) -> None:
        if self._telling is not None:
            return
        hub = self._room.hub
        wait_ms = max(0, self._told_ms + limits.PRESENCE_PAUSE_MS - hub.now_ms())
        if wait_ms:
            self._telling = hub.later(wait_ms / 1000, self.tell)
        else:
            self.tell()
