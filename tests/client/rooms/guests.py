"""Rooms of several users at a pure server, without connections: what is sent arrives by `pump`."""

from typing import Any

from onceward.api.rooms import RoomMember, Schemas
from onceward.client.rooms.replica import Replica
from onceward.client.rooms.room import Room
from onceward.rooms.frames import (
    Join,
    Joined,
    Ops,
    Snapshot,
    encode,
    read_server,
)
from onceward.rooms.schemas import Shapes
from tests.client.rooms.world import Link, Server


class Guest:
    """One user's room, and the line that it has to the server."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self.clock_ms = 1_000
        self.restarts = 0
        self.rejoins = 0
        self.forgotten = 0
        self.sent: list[Any] = []
        self.link: Link | None = None
        self.replica = Replica("r", f"{name}-client")
        self.room = Room(self, self.replica)
        self.room.user = self.replica.user = name

    # The line.

    def stir(self) -> None:
        pass

    def now_ms(self) -> int:
        return self.clock_ms

    def restart(self) -> None:
        self.restarts += 1

    def rejoin(self, room: Room) -> None:
        self.rejoins += 1

    def forget(self, room: Room) -> None:
        self.forgotten += 1

    # What happens to it.

    def connect(self) -> None:
        self.link = Link(self)  # type: ignore[arg-type]
        self.server.links.append(self.link)
        self._up(self.replica.join())

    def cut(self) -> None:
        if self.link is not None:
            self.server.links.remove(self.link)
            self.link = None
            self.room.lost()
            self.room.settle()

    def hear(self, *frames: Any) -> None:
        """What a server says."""
        for frame in frames:
            self.room.receive(read_server(encode(frame)))
        self.room.settle()

    def pump(self) -> None:
        """Let arrive what is under way."""
        busy = self.link is not None
        while busy and self.link is not None:
            for frame in self.room.take_out():
                self._up(frame)
            self.server.commit()
            busy = bool(self.link.down)
            while self.link.down:
                self.room.receive(read_server(self.link.down.popleft()))
            self.room.settle()

    def _up(self, frame: Any) -> None:
        self.sent.append(frame)
        if self.link is not None and isinstance(frame, Ops | Join):
            self.server.receive(self.link, encode(frame))


def guests(*names: str, schemas: Schemas | None = None) -> list[Guest]:
    """Users in one room, all of them there."""
    server = Server(keep=1_000)
    server.room.shapes = Shapes(schemas)
    found = [Guest(server, name) for name in names]
    for guest in found:
        guest.connect()
    pump(*found)
    return found


def pump(*all_: Guest) -> None:
    for _ in range(3):
        for guest in all_:
            guest.pump()


def joined(**more: Any) -> Joined:
    """What a server says to someone new."""
    options: dict[str, Any] = {"members": [RoomMember("m1", "ann")], "presences": {}, **more}
    return Joined("r", "e", 0, 0, "m1", reset="new", **options)


def live() -> Guest:
    """One user in an empty room; the test says what its server says."""
    ann = Guest(Server(keep=1), "ann")
    ann.hear(joined(), Snapshot("r", 0, {}, {}))
    ann.room.take_out()
    return ann
