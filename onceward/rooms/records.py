"""Records of rooms: structs and keys.

The head is written with every step and checked by all who decide from the log; settings have a
record of their own, since they rarely change, and the head counts how often they do. Log and
snapshots stand under the room's epoch, so a room that was deleted can be made again at once, while
the records of the old one are removed.
"""

from functools import lru_cache
from typing import Any, Final

import msgspec

from onceward import keys, limits
from onceward.api.rooms import Schemas
from onceward.errors import BadInput
from onceward.keys import Key
from onceward.rooms.names import admit_room, encoded

ROOMS: Final = "rooms"
ROOM: Final = "room"
LOG: Final = "roomlog"
SNAPSHOTS: Final = "roomsnap"
ROOM_DUE: Final = "room-purge"
"""The kind of entries in due that remove what a deleted room has left."""
PURGE_RECORDS: Final = 40  # of the log, and of snapshots
PURGE_WRITES: Final = 2 * PURGE_RECORDS + 2


class Info(msgspec.Struct, omit_defaults=True):
    """What was said about a room when it was made, or since."""

    epoch: str
    created_ms: int
    by: str = ""
    meta: dict[str, Any] = {}
    """What it can be searched by."""
    schemas: Schemas = Schemas()
    capacity: int = limits.ROOM_MEMBERS_MAX
    """How many users may be in it at a time."""
    per_user: int = limits.ROOM_PER_USER
    """How many connections each of them may have."""
    keep: int = limits.ROOM_KEEP_STEPS
    """So many steps back it can be seen, and clients can catch up."""
    reserved: bool = False
    """Whether the creator is a member without a connection: until it joins."""


class Listed(msgspec.Struct, omit_defaults=True):
    """A room in the list of all."""

    epoch: str
    created_ms: int
    by: str = ""
    meta: dict[str, Any] = {}


class Head(msgspec.Struct):
    """Where a room is. Whoever adds to the log writes this."""

    epoch: str
    seq: int = 0
    snapshots: list[tuple[int, int, str]] = msgspec.field(default_factory=lambda: [(0, 0, "")])
    """Sequence number, count of pieces and digest of the log there, the oldest first. A new room
    is a snapshot without pieces."""
    log_bytes: int = 0
    """How much the log has got since the last snapshot."""
    swept: int = 0
    """Up to here nothing is left of the log."""
    settings: int = 0
    """How often they have changed: who has read them needs to look no more than here."""
    digest: str = ""
    """Of the whole log, with what is no longer kept of it."""

    @property
    def floor(self) -> int:
        """The log begins behind this sequence number, where the oldest snapshot is."""
        return self.snapshots[0][0]


def listed_key(id_: str) -> Key:
    return ROOMS, keys.join(id_)


def info_key(id_: str) -> Key:
    if type(id_) is not str:
        admit_room(id_)
    return _partition(id_), "info"


def head_key(id_: str) -> Key:
    if type(id_) is not str:
        admit_room(id_)
    return _partition(id_), "head"


@lru_cache(limits.ROOMS_NAMED_MAX)
def _partition(id_: str) -> str:
    admit_room(id_)
    return keys.join(ROOM, id_)


@lru_cache(limits.ROOMS_NAMED_MAX)
def log_partition(id_: str, epoch: str) -> str:
    return keys.join(LOG, id_, epoch)


def snapshot_partition(id_: str, epoch: str) -> str:
    return keys.join(SNAPSHOTS, id_, epoch)


def admit_info(info: Info) -> None:
    """Raise `BadInput` for settings that no room can have."""
    if not isinstance(info.schemas, Schemas):
        raise BadInput(
            f"schemas are `Schemas`, not {type(info.schemas).__name__}", code="bad_schema"
        )
    text = encoded(info.meta)
    if not text.startswith(b"{"):
        raise BadInput("the metadata of a room is an object", code="wrong_type")
    size = len(text)
    if size > limits.ROOM_META_BYTES_MAX:
        raise BadInput(
            f"the metadata of a room has at most {limits.ROOM_META_BYTES_MAX} bytes, not {size}",
            code="value_too_large",
        )
    for value, most, what in (
        (info.capacity, limits.ROOM_MEMBERS_MAX, "the capacity of a room"),
        (info.per_user, limits.ROOM_MEMBERS_MAX, "the number of connections per user"),
        (info.keep, limits.ROOM_KEEP_STEPS_MAX, "the number of steps that a room keeps"),
    ):
        if type(value) is not int or not 0 < value <= most:
            raise BadInput(f"{what} is 1 to {most}, not {str(value)[:50]}")
