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

# The kinds of due entries: the end of a lease, names to grant, a name that may be unused.
LOCK_DUE: Final = "lock"
GRANT_DUE: Final = "lock-grant"
UNUSED_DUE: Final = "lock-unused"

WAITING: Final = "waiting"
HELD: Final = "held"


class Head(msgspec.Struct):
    """The state of a name. Every change of its holders or waiters writes it."""

    capacity: int
    token: int
    """The token of the newest grant."""
    held: int = 0
    waiting: int = 0
    next: int = 0
    """The queue number of the next waiter."""
    used_ms: int = 0

    @property
    def open(self) -> bool:
        """Whether the first waiter can hold it."""
        return self.held < self.capacity

    @property
    def free(self) -> bool:
        """Whether a new request can hold it: it has capacity and no waiters."""
        return self.open and not self.waiting


class Request(msgspec.Struct):
    """A request for names, and its state. Removed when it ends."""

    id: str
    owner: str
    state: str
    lease_ms: int
    created_ms: int
    until_ms: int
    """The end of its lease, held or waiting, unless it was renewed."""
    places: dict[str, int]
    """Its number in the queue of each name, while it waits."""
    tokens: dict[str, int]
    """Its token for each name, while it holds them."""

    @property
    def names(self) -> list[str]:
        return list(self.places or self.tokens)

    @property
    def held(self) -> bool:
        return self.state == HELD


class Renewed(msgspec.Struct):
    """A renewed lease, which replaces that of the request while it is in the same state.

    The record expires with the lease.
    """

    state: str
    until_ms: int


class Stand(msgspec.Struct):
    """A holder or a waiter of a name."""

    id: str
    owner: str
    since_ms: int
    number: int = 0
    """The token of a holder, or the queue number of a waiter."""


class Status(msgspec.Struct):
    """A lock with its holders and waiters, in order."""

    name: str
    capacity: int
    token: int
    held: int
    waiting: int
    holders: list[Stand]
    waiters: list[Stand]


def slot_of(id_: str) -> int:
    """The slot in the id of a request; raises `BadInput` for an invalid id."""
    if type(id_) is str and len(id_) == LENGTH + 3 and id_.isascii() and id_.isalnum():
        try:
            return int(id_[LENGTH:], 16)
        except ValueError:
            pass
    raise BadInput(
        f"{str(id_)[:100]!r} is not the id of a request for locks; use the one that "
        "`acquire` returned",
        code="bad_key",
    )


def name_slot(name: str, slots: int) -> int:
    return crc32(name.encode()) % slots


def request_key(id_: str) -> Key:
    if type(id_) is not str:
        slot_of(id_)  # rejects it
    return _request_key(id_)


@lru_cache(limits.LOCK_KEYS_KEPT)
def _request_key(id_: str) -> Key:
    # A separate partition, so that its owner can watch it.
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
    """The key range of the holders or waiters of a name: the partition, the start and the end."""
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
    """Reject invalid names and capacities."""
    if not isinstance(capacities, Mapping):
        raise BadInput(
            "locks must be a mapping of names to capacities, such as {'printer': 1}, "
            f"not {type(capacities).__name__}"
        )
    if not 0 < len(capacities) <= limits.LOCK_NAMES_MAX:
        raise BadInput(
            f"a request must have 1 to {limits.LOCK_NAMES_MAX} names, not {len(capacities)}; "
            "use one name for locks that are always acquired together"
        )
    for name, capacity in capacities.items():
        keys.admit_name(name, "a lock's name", limits.LOCK_NAME_BYTES_MAX)
        if type(capacity) is not int or not 0 < capacity <= limits.LOCK_CAPACITY_MAX:
            raise BadInput(
                f"the capacity of {name!r} must be 1 to {limits.LOCK_CAPACITY_MAX}, not "
                f"{capacity!r}"
            )


def admit_owner(owner: str) -> None:
    if type(owner) is not str or len(owner) > limits.WORKER_CHARS_MAX:
        raise BadInput(
            f"an owner's name must be text of at most {limits.WORKER_CHARS_MAX} characters, "
            f"not {str(owner)[:50]!r}"
        )


def admit_token(token: int) -> None:
    if type(token) is not int or not 0 < token <= limits.KEY_NUMBER_MAX:
        raise BadInput(f"a token must be a positive integer from a lock, not {token!r}")
