"""Records of tables: structs and keys.

The head of a table is written by all who change seats or line, and checked by all who decide from
them. Whoever is at a table has a record there, so nobody is there twice. Those who wait stand in
lanes, each with a number; how many of the lower numbers have gone is counted in blocks, so that a
position is found without a list. All of it stands under the table's epoch: a table that was
closed can be made again while what is left of the old one is removed.
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
"""The kind of entries in due for the next thing that time does to a table …"""
WAIT_DUE: Final = "seats-wait"
"""… for one who waits, or watches, and may have gone …"""
PURGE_DUE: Final = "seats-purge"
"""… and for what a closed table has left."""


class Front(msgspec.Struct):
    """The first one in a lane."""

    number: int
    order: int
    since_ms: int


class Lane(msgspec.Struct, omit_defaults=True):
    """A lane: one for each priority, tier and size of party."""

    priority: int
    tier: int = 0
    size: int = 1
    next: int = 0
    """The number of the next one who comes."""
    waiting: int = 0
    """How many places are taken; each is for as many people as `size` says."""
    front: Front | None = None
    base: int = 0
    """The group of numbers with which `gone` begins; of those before it all have gone."""
    gone: list[int] = []
    """How many numbers of each group have gone."""
    went: int = 0
    """How many have gone in all …"""
    recent: list[int] = []
    """… and the numbers of the last ones: so whoever watches can count along."""
    shown: int = 0
    """How many are in the live view, from the front on …"""
    last: int = 0
    """… and the number of the last one of them."""


class Head(msgspec.Struct, omit_defaults=True):
    """What is so at a table. Whoever changes anything there writes this."""

    epoch: str
    phase: Phase = "waiting"
    game: int = 0
    """The number of the game that is on, or was the last."""
    began_ms: int = 0
    ended_ms: int = 0
    """When the last game ended: with a break, the next one begins some time after it."""
    seats: dict[str, Seat] = {}
    """Those that are taken, by marker."""
    lanes: dict[str, Lane] = {}
    order: int = 0
    """How many have come to the line: so lanes can be compared."""
    draws: int = 0
    """In a row."""
    again: bool = False
    """Whether those who are seated are those who played last."""
    empty_ms: int = 0
    """Since when a seat is empty."""
    paused_ms: int = 0
    """Since when it is paused; 0: it is not."""
    paused_why: str = ""
    """Why it has paused by itself; empty: it has not."""
    unplayed: int = 0
    """How many games in a row were over before anyone could move."""
    due_ms: int = 0
    """When its entry in due is."""
    pace_ms: int = 0
    """How long it has taken lately until the next one of the line was seated; 0: not known."""
    paced_ms: int = 0
    """When the game began, the last one was seated, or the line began, whichever was last: from
    then on the next one waits."""
    measured_ms: int = 0
    """From when on the pace is measured: the last one was seated, or the line began."""
    spectators: int = 0
    opened: int = 0
    """How many tables were opened from here."""

    @property
    def waiting(self) -> int:
        """How many people wait."""
        return sum(lane.waiting * lane.size for lane in self.lanes.values())


class Info(msgspec.Struct, omit_defaults=True):
    """What was said about a table when it was made."""

    epoch: str
    policy: Policy
    created_ms: int
    game: str = ""
    """Which referee judges here; empty: results are told from outside."""
    by: str = ""
    meta: dict[str, Any] = {}
    pool: str = ""
    """The table that this one was opened from."""


class Stand(msgspec.Struct, omit_defaults=True):
    """One person at a table."""

    role: Role
    since_ms: int
    lane: str = ""
    """The key of the lane, while waiting."""
    number: int = 0
    due_ms: int = 0
    """When a sign of life is looked for; 0: never."""
    opened: str = ""
    """The table that was opened for it from here."""
    idle: int = 0
    """As of its last seat."""
    key: str = ""
    """Of its last move …"""
    made: str = ""
    """… a digest of it …"""
    answer: Any = None
    """… and what was answered."""


class Wait(msgspec.Struct, omit_defaults=True):
    """One place in a lane."""

    users: tuple[str, ...]
    since_ms: int
    order: int
    lane: str
    """Its name, without tier and size."""


# Where they stand.


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
    """The best stand first."""
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
    """Raise `BadInput` for what cannot be the id of a table."""
    keys.admit_name(id_, "a table's id", limits.SEATS_ID_BYTES_MAX)


def admit_user(user: Any) -> None:
    """Raise `BadInput` for what cannot be the name of a user."""
    keys.admit_name(user, "a user's name", limits.SEATS_USER_BYTES_MAX)


def admit_move_key(key: Any) -> None:
    """Raise `BadInput` for what cannot be the key of a move."""
    if not names_fit(key, limits.SEATS_USER_BYTES_MAX):
        raise BadInput(
            f"a move's key is text of 1 to {limits.SEATS_USER_BYTES_MAX} bytes", code="bad_key"
        )
