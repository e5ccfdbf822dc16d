"""Records of locks: structs, keys and validation."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal
from zlib import crc32

import msgspec

from onceward import keys, limits
from onceward.errors import BadInput
from onceward.ids import LENGTH
from onceward.keys import Key

# The kinds of entries in due: a lease at its end, names to look at once more, a name that
# may be unused.
LOCK_DUE: Final = "lock"
GRANT_DUE: Final = "lock-grant"
UNUSED_DUE: Final = "lock-unused"

WAITING: Final = "waiting"
HELD: Final = "held"


class Head(msgspec.Struct):
    """What is known of a name. Whoever changes its holders or its line writes this."""

    capacity: int
    token: int
    """The newest one granted."""
    held: int = 0
    waiting: int = 0
    next: int = 0
    """The place of the next one who joins the line."""
    used_ms: int = 0

    @property
    def open(self) -> bool:
        """Whether there is room for whoever is first in line."""
        return self.held < self.capacity

    @property
    def free(self) -> bool:
        """Whether a newcomer may have it: room, and nobody who came before."""
        return self.open and not self.waiting


class Request(msgspec.Struct):
    """Who asks for which names, and what became of it. Gone when it is over."""

    id: str
    owner: str
    state: str
    lease_ms: int
    created_ms: int
    until_ms: int
    """When its lease ends, or its place in the lines, unless it was renewed since."""
    places: dict[str, int]
    """Its place in the line of each name, while it waits."""
    tokens: dict[str, int]
    """Its token for each name, while it holds them."""

    @property
    def names(self) -> list[str]:
        return list(self.places or self.tokens)

    @property
    def held(self) -> bool:
        return self.state == HELD


class Renewed(msgspec.Struct):
    """A lease that was renewed: it counts instead of the request's own, in the same state.

    The record expires when the lease does.
    """

    state: str
    until_ms: int


class Stand(msgspec.Struct):
    """A holder, or one who waits: the value of a record under the name."""

    id: str
    owner: str
    since_ms: int
    number: int = 0
    """A holder's token, or a place in line."""


class Status(msgspec.Struct):
    """A name with those who hold it and those who wait, in order."""

    name: str
    capacity: int
    token: int
    held: int
    waiting: int
    holders: list[Stand]
    waiters: list[Stand]


def slot_of(id_: str) -> int:
    """The slot that a request's id contains; raises `BadInput` if it is no request's id."""
    if type(id_) is str and len(id_) == LENGTH + 3 and id_.isascii() and id_.isalnum():
        try:
            return int(id_[LENGTH:], 16)
        except ValueError:
            pass
    raise BadInput(f"{str(id_)[:100]!r} is not the id of a request for locks", code="bad_key")


def name_slot(name: str, slots: int) -> int:
    return crc32(name.encode()) % slots


def request_key(id_: str) -> Key:
    if type(id_) is not str:
        slot_of(id_)  # refuses it
    return _request_key(id_)


@lru_cache(limits.LOCK_KEYS_KEPT)
def _request_key(id_: str) -> Key:
    # A partition of its own, so that its owner can watch it.
    return f"ask#{slot_of(id_):04d}#{id_}", "request"


def renewed_key(id_: str) -> Key:
    return f"ask#{slot_of(id_):04d}", id_


@lru_cache(limits.LOCK_KEYS_KEPT)
def head_key(name: str, slots: int) -> Key:
    return lock_partition(name, slots), keys.join(name, "head")


def hold_key(name: str, token: int, slots: int) -> Key:
    partition, start, _ = stands(name, "hold", slots)
    return partition, start + keys.number(token)


def wait_key(name: str, place: int, slots: int) -> Key:
    partition, start, _ = stands(name, "wait", slots)
    return partition, start + keys.number(place)


@lru_cache(limits.LOCK_KEYS_KEPT)
def stands(name: str, what: Literal["hold", "wait"], slots: int) -> tuple[str, str, str]:
    """Where those stand who hold a name, or wait for it: the partition, the start and the end."""
    return lock_partition(name, slots), *keys.below(name, what)


@lru_cache(limits.LOCK_KEYS_KEPT)
def lock_partition(name: str, slots: int) -> str:
    return partition_of(name_slot(name, slots))


def partition_of(slot: int) -> str:
    return f"lock#{slot:04d}"


def fence_key(slot: int) -> Key:
    return "fence", f"{slot:04d}"


def gate_key(resource: str) -> Key:
    return f"gate#{crc32(resource.encode()) % 64:02d}", keys.join(resource)


def admit_names(capacities: Mapping[str, int]) -> None:
    """Refuse what cannot be names of locks with their capacities."""
    if not isinstance(capacities, Mapping):
        raise BadInput("names of locks come with their capacities, as in {'printer': 1}")
    if not 0 < len(capacities) <= limits.LOCK_NAMES_MAX:
        raise BadInput(
            f"a request has 1 to {limits.LOCK_NAMES_MAX} names, not {len(capacities)}: "
            "if it needs more, give what is always taken together one name"
        )
    for name, capacity in capacities.items():
        keys.admit_name(name, "a lock's name", limits.LOCK_NAME_BYTES_MAX)
        if type(capacity) is not int or not 0 < capacity <= limits.LOCK_CAPACITY_MAX:
            raise BadInput(
                f"the capacity of {name!r} is 1 to {limits.LOCK_CAPACITY_MAX}, not {capacity!r}"
            )


def admit_owner(owner: str) -> None:
    if type(owner) is not str or len(owner) > limits.WORKER_CHARS_MAX:
        raise BadInput(f"an owner's name has at most {limits.WORKER_CHARS_MAX} characters")


def admit_token(token: int) -> None:
    if type(token) is not int or not 0 < token <= limits.KEY_NUMBER_MAX:
        raise BadInput(f"a token is a number that came with a lock, not {token!r}")
