"""Copies of a room whose server is the test: it says what is heard."""

from typing import Any

from onceward.api.room_changes import MapSet, RoomOperation
from onceward.client.rooms.replica import Replica
from onceward.errors import OncewardError
from onceward.rooms.frames import Change, Joined, Ops, Snapshot


def joined(seq: int = 0, n: int = 0, *, epoch: str = "e", **more: Any) -> Joined:
    return Joined("r", epoch, seq, n, "m1", [], {}, **more)


def live(maps: Any = None, lists: Any = None, *, seq: int = 0) -> Replica:
    """A copy that has joined, of a room in which there was something already."""
    replica = Replica("r", "me")
    replica.user = "ann"
    replica.join()
    hear(replica, joined(seq, reset="new"), Snapshot("r", seq, maps or {}, lists or {}))
    replica.changed.clear()
    return replica


def hear(replica: Replica, *frames: Any) -> None:
    for frame in frames:
        replica.receive(frame)
    replica.settle()


def by_bob(seq: int, *ops: RoomOperation) -> Change:
    return Change("r", seq, list(ops), "bob", "bobs", seq)


def put(key: str, value: Any = 1) -> MapSet:
    return MapSet("m", key, value)


def sent(replica: Replica) -> list[int]:
    """The numbers of the steps that were sent just now."""
    frames, replica.out[:] = list(replica.out), []
    return [frame.n for frame in frames if isinstance(frame, Ops)]


def entries(replica: Replica) -> Any:
    return replica.state.plain()["maps"].get("m", {})


def code(error: OncewardError | None) -> str | None:
    return error and error.code
