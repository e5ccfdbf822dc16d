"""Records of tables: structs and keys.

Every change of seats or waitlist writes the head of the table, and every decision based on them
checks it. Each user at a table has one record there, so a user cannot be there twice. Waiters have
numbered places in lanes. Blocks count the removed numbers, so that positions are found without
reading the list. All records are under the table's epoch, so that an id can be used again while the
records of a closed table are still being removed.
"""

from typing import Any, Final
from zlib import crc32

import msgspec

from onceward import keys, limits
from onceward.api.tables import Phase, Policy, Role, Seat
from onceward.errors import BadInput
from onceward.keys import Key
from onceward.schedule import due_partition
from onceward.tables.policy import names_fit

TABLES: Final = "tables"
TABLE: Final = "table"
CLOCK_DUE: Final = "seats-clock"
"""The kind of due entries for the next deadline of a table."""
WAIT_DUE: Final = "seats-wait"
"""The kind of due entries that check waiters and spectators for heartbeats."""
PURGE_DUE: Final = "seats-purge"
"""The kind of due entries that remove the records of a closed table."""


class Front(msgspec.Struct):
    """The first entry of a lane."""

    number: int
    order: int
    since_ms: int


class Lane(msgspec.Struct, omit_defaults=True):
    """A lane: one for each priority, tier and party size."""

    priority: int
    tier: int = 0
    size: int = 1
    next: int = 0
    """The number of the next entry."""
    waiting: int = 0
    """The number of entries; each is for `size` users."""
    front: Front | None = None
    base: int = 0
    """The first group of numbers in `gone`; all numbers before it were removed."""
    gone: list[int] = []
    """The count of removed numbers in each group."""
    went: int = 0
    """The count of all removed numbers."""
    recent: list[int] = []
    """The last removed numbers, so that clients of the live view can count positions."""
    shown: int = 0
    """The number of entries in the live view, from the front."""
    last: int = 0
    """The number of the last entry in the live view."""


class Head(msgspec.Struct, omit_defaults=True):
    """The state of a table. Every change of the table writes this record."""

    epoch: str
    phase: Phase = "waiting"
    game: int = 0
    """The number of the current or last game."""
    began_ms: int = 0
    ended_ms: int = 0
    """When the last game ended; a break between games is counted from it."""
    seats: dict[str, Seat] = {}
    """The occupied seats, by marker."""
    lanes: dict[str, Lane] = {}
    order: int = 0
    """The count of all entries of the waitlist, for comparing lanes."""
    draws: int = 0
    """The number of draws in a row."""
    again: bool = False
    """Whether the seated players are those of the last game."""
    empty_ms: int = 0
    """Since when a seat is empty."""
    paused_ms: int = 0
    """Since when the table is paused; 0 if it is not."""
    paused_why: str = ""
    """Why the table was paused automatically; empty if it was not."""
    unplayed: int = 0
    """The number of games in a row that ended before a move was possible."""
    due_ms: int = 0
    """The time of the table's due entry."""
    pace_ms: int = 0
    """The recent average time until the next waiter is seated; 0 if unknown."""
    paced_ms: int = 0
    """When the current wait of the next waiter began.

    The latest of: the start of the game, the last seating, the first entry of the waitlist.
    """
    measured_ms: int = 0
    """When the measurement of the pace began: the last seating, or the first entry of the
    waitlist."""
    spectators: int = 0
    opened: int = 0
    """The number of tables opened from this one."""

    @property
    def waiting(self) -> int:
        """The number of waiting users."""
        return sum(lane.waiting * lane.size for lane in self.lanes.values())


class Info(msgspec.Struct, omit_defaults=True):
    """The settings of a table from its creation."""

    epoch: str
    policy: Policy
    created_ms: int
    game: str = ""
    """The referee's name; empty if results are reported by a server."""
    by: str = ""
    meta: dict[str, Any] = {}
    pool: str = ""
    """The table from which this one was opened."""


class Stand(msgspec.Struct, omit_defaults=True):
    """The record of one user at a table."""

    role: Role
    since_ms: int
    lane: str = ""
    """The key of the lane, for waiters."""
    number: int = 0
    due_ms: int = 0
    """When the next heartbeat is due; 0 for never."""
    opened: str = ""
    """The table that was opened for this user from here."""
    idle: int = 0
    """The idle count of the user's last seat."""
    key: str = ""
    """The key of the user's last move."""
    made: str = ""
    """A digest of that move."""
    answer: Any = None
    """The response to that move."""


class Wait(msgspec.Struct, omit_defaults=True):
    """One entry of a lane."""

    users: tuple[str, ...]
    since_ms: int
    order: int
    lane: str
    """The name of the lane, without tier and size."""


# Keys.


def table_partition(id_: str) -> str:
    return keys.join(TABLE, id_)


def info_key(id_: str) -> Key:
    admit_table(id_)
    return table_partition(id_), "info"


def head_key(id_: str) -> Key:
    admit_table(id_)
    return table_partition(id_), "head"


def listed_key(id_: str) -> Key:
    return TABLES, keys.join(id_)


def stands_partition(id_: str, epoch: str) -> str:
    return keys.join("stand", id_, epoch)


def stand_key(id_: str, epoch: str, user: str) -> Key:
    return stands_partition(id_, epoch), keys.join(user)


def heartbeat_partition(id_: str, epoch: str) -> str:
    return keys.join("heartbeat", id_, epoch)


def heartbeat_key(id_: str, epoch: str, user: str) -> Key:
    return heartbeat_partition(id_, epoch), keys.join(user)


def lane_partition(id_: str, epoch: str) -> str:
    return keys.join("lane", id_, epoch)


def wait_key(id_: str, epoch: str, lane: str, number: int) -> Key:
    return lane_partition(id_, epoch), keys.join(lane, "wait", number)


def block_key(id_: str, epoch: str, lane: str, block: int) -> Key:
    return lane_partition(id_, epoch), keys.join(lane, "block", block)


def group_key(id_: str, epoch: str, lane: str, group: int) -> Key:
    return lane_partition(id_, epoch), keys.join(lane, "group", group)


def rating_key(ladder: str, user: str) -> Key:
    return keys.join("rating", ladder), keys.join(user)


def ladder_partition(ladder: str) -> str:
    return keys.join("ladder", ladder)


def ladder_key(ladder: str, rating: int, user: str) -> Key:
    """A key that sorts the highest rating first."""
    return ladder_partition(ladder), keys.join(limits.SEATS_RATING_MAX - rating, user)


def slot_of(id_: str, slots: int) -> int:
    return crc32(id_.encode()) % slots


def clock_entry(id_: str, head: Head, slots: int) -> Key:
    sort = keys.join(head.due_ms, id_, head.epoch, CLOCK_DUE)
    return due_partition(slot_of(id_, slots)), sort


def wait_entry(id_: str, epoch: str, user: str, due_ms: int, slots: int) -> Key:
    return due_partition(slot_of(id_, slots)), keys.join(due_ms, id_, epoch, user, WAIT_DUE)


def purge_entry(id_: str, epoch: str, due_ms: int, slots: int) -> Key:
    return due_partition(slot_of(id_, slots)), keys.join(due_ms, id_, epoch, PURGE_DUE)


def admit_table(id_: Any) -> None:
    """Raise `BadInput` for an invalid table id."""
    keys.admit_name(id_, "a table's id", limits.SEATS_ID_BYTES_MAX)


def admit_user(user: Any) -> None:
    """Raise `BadInput` for an invalid user name."""
    keys.admit_name(user, "a user's name", limits.SEATS_USER_BYTES_MAX)


def admit_move_key(key: Any) -> None:
    """Raise `BadInput` for an invalid key of a move."""
    if not names_fit(key, limits.SEATS_USER_BYTES_MAX):
        raise BadInput(
            f"a move's key must be text of 1 to {limits.SEATS_USER_BYTES_MAX} bytes, not "
            f"{str(key)[:100]!a}",
            code="bad_key",
        )


def admit_ladder(ladder: Any) -> None:
    """Raise `BadInput` for an invalid name of a ladder."""
    if not names_fit(ladder, limits.SEATS_NAME_BYTES_MAX):
        raise BadInput(
            f"invalid name of a ladder: {str(ladder)[:100]!r}; use the name of a game",
            code="bad_name",
        )
