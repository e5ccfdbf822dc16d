"""Records of rooms: structs and keys.

Every step writes the head, and every decision based on the log checks it. Settings rarely change,
so they have a separate record; the head counts their changes. Log and snapshots have the room's
epoch in their keys, so a deleted room can be created again while the old records are being removed.
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
"""The kind of due entries that remove the records of a deleted room."""
PURGE_RECORDS: Final = 40  # of the log, and of snapshots
PURGE_WRITES: Final = 2 * PURGE_RECORDS + 2


class Info(msgspec.Struct, omit_defaults=True):
    """The settings of a room."""

    epoch: str
    created_ms: int
    by: str = ""
    meta: dict[str, Any] = {}
    """Searchable metadata."""
    schemas: Schemas = Schemas()
    capacity: int = limits.ROOM_MEMBERS_MAX
    """The maximum number of users at a time."""
    per_user: int = limits.ROOM_PER_USER
    """The maximum number of connections per user."""
    keep: int = limits.ROOM_KEEP_STEPS
    """The length of the history in steps, for loading and for clients that reconnect."""
    reserved: bool = False
    """Whether the creator counts as a member until it joins."""


class Listed(msgspec.Struct, omit_defaults=True):
    """A room in the list of all rooms."""

    epoch: str
    created_ms: int
    by: str = ""
    meta: dict[str, Any] = {}


class Head(msgspec.Struct):
    """The position of a room. Every append to the log writes it."""

    epoch: str
    seq: int = 0
    snapshots: list[tuple[int, int, str]] = msgspec.field(default_factory=lambda: [(0, 0, "")])
    """Sequence number, number of pieces and digest of the log there, oldest first. A new room has a
    snapshot without pieces.
    """
    log_bytes: int = 0
    """The size of the log since the last snapshot."""
    swept: int = 0
    """The log has been removed up to this sequence number."""
    settings: int = 0
    """The number of changes of the settings, by which a reader detects new ones."""
    digest: str = ""
    """The digest of the whole log, including removed parts."""

    @property
    def floor(self) -> int:
        """The sequence number of the oldest snapshot; the log starts after it."""
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
    """Raise `BadInput` for invalid settings."""
    if not isinstance(info.schemas, Schemas):
        raise BadInput(
            f"`schemas` must be a `Schemas`, not {type(info.schemas).__name__}", code="bad_schema"
        )
    text = encoded(info.meta)
    if not text.startswith(b"{"):
        raise BadInput(
            f"the metadata of a room must be a mapping, not {type(info.meta).__name__}",
            code="wrong_type",
        )
    size = len(text)
    if size > limits.ROOM_META_BYTES_MAX:
        raise BadInput(
            f"the metadata of a room must have at most {limits.ROOM_META_BYTES_MAX} bytes, "
            f"not {size}",
            code="value_too_large",
        )
    for value, most, what in (
        (info.capacity, limits.ROOM_MEMBERS_MAX, "the capacity of a room"),
        (info.per_user, limits.ROOM_MEMBERS_MAX, "the number of connections per user"),
        (info.keep, limits.ROOM_KEEP_STEPS_MAX, "the number of steps that a room keeps"),
    ):
        if type(value) is not int or not 0 < value <= most:
            raise BadInput(f"{what} must be 1 to {most}, not {str(value)[:50]}")
