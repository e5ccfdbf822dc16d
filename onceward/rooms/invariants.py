"""Invariants of room records, for `onceward db check` and tests.

The key of a log record is its last sequence number, so each record identifies its predecessor. If
all of them and the head have theirs, the log has no gap.
"""

from collections.abc import Iterator
from typing import TypeVar

from onceward import keys
from onceward.engine.base import Record
from onceward.engine.invariants import Lookup, Rule, value_of
from onceward.rooms.records import (
    LOG,
    ROOM,
    ROOM_DUE,
    ROOMS,
    SNAPSHOTS,
    Head,
    Info,
    Listed,
    head_key,
    info_key,
    listed_key,
    log_partition,
    snapshot_partition,
)
from onceward.rooms.room import Entry, Piece

T = TypeVar("T")


def _listed(record: Record, get: Lookup) -> Iterator[str]:
    listed = value_of(record, Listed)
    [id_] = keys.split(record.key[1])
    info = value_of(get(info_key(id_)), Info)
    if listed is None:
        yield "this is not an entry of the list of rooms"
    elif info is None:
        yield f"room {id_!r} not found"
    elif listed != _shown(info):
        yield f"it differs from the settings of the room {id_!r}"


def _room(record: Record, get: Lookup) -> Iterator[str]:
    id_ = keys.split(record.key[0])[1]
    if record.key == info_key(id_):
        yield from _info(record, id_, get)
    elif record.key == head_key(id_):
        yield from _head(record, id_, get)
    else:
        yield "unknown record of a room"


def _info(record: Record, id_: str, get: Lookup) -> Iterator[str]:
    info = value_of(record, Info)
    if info is None:
        yield "these are not the settings of a room"
        return
    if get(head_key(id_)) is None:
        yield "the room has no head"
    if get(listed_key(id_)) is None:
        yield "the room is not in the list of rooms"


def _head(record: Record, id_: str, get: Lookup) -> Iterator[str]:
    head, info = value_of(record, Head), value_of(get(info_key(id_)), Info)
    if head is None or not head.snapshots or head.floor > head.seq:
        yield "this is not the head of a room"
        return
    if info is None or info.epoch != head.epoch:
        yield "the room has no settings of this epoch"
    if head.seq == head.floor:
        if head.digest != head.snapshots[0][2]:
            yield f"its digest is not that of the snapshot at {head.seq}"
    else:
        yield from _leads_to(id_, head, head.seq, head.digest, get)
    for at, count, digest in head.snapshots:
        if at > head.floor:
            yield from _leads_to(id_, head, at, digest, get)
        for number in range(count):
            if get((snapshot_partition(id_, head.epoch), keys.join(at, number))) is None:
                yield f"piece {number} of the snapshot at {at} is missing"


def _leads_to(id_: str, head: Head, seq: int, digest: str, get: Lookup) -> Iterator[str]:
    """Yield a problem unless the log has an entry with this digest."""
    found = get((log_partition(id_, head.epoch), keys.number(seq)))
    entries = value_of(found, list[Entry])
    if not entries or entries[-1].seq != seq:
        yield f"entry {seq} of the log is missing"
    elif entries[-1].digest != digest:
        yield f"entry {seq} of the log has another digest"


def _log(record: Record, get: Lookup) -> Iterator[str]:
    _, id_, epoch = keys.split(record.key[0])
    entries = value_of(record, list[Entry])
    if not entries or keys.number(entries[-1].seq) != record.key[1]:
        yield "this is not a part of the log of a room"
        return
    head = value_of(get(head_key(id_)), Head)
    if head is None or head.epoch != epoch or entries[-1].seq <= head.floor:
        return  # it is being removed
    if entries[-1].seq > head.seq:
        yield f"the log of the room ends at {head.seq}"
        return
    since = entries[0].seq - 1
    before = value_of(get((record.key[0], keys.number(since))), list[Entry])
    if since > head.floor and not before:
        yield f"entry {since} of the log is missing"
        return
    digests = {at: digest for at, _, digest in head.snapshots}
    digest = digests[since] if since in digests else before[-1].digest if before else ""
    for seq, entry in enumerate(entries, since + 1):
        if entry.seq != seq:
            yield f"entry {seq} of the log is missing"
            return
        if not entry.follows(digest):
            yield f"entry {seq} does not continue the log: the digests differ"
            return
        digest = entry.digest


def _snapshot(record: Record, get: Lookup) -> Iterator[str]:
    _, id_, epoch = keys.split(record.key[0])
    at, number = map(int, keys.split(record.key[1]))
    if value_of(record, Piece) is None:
        yield "this is not a piece of a snapshot"
        return
    head = value_of(get(head_key(id_)), Head)
    if head is None or head.epoch != epoch or at < head.floor:
        return  # it is being removed
    if not any(at == seq and number < count for seq, count, _ in head.snapshots):
        yield f"the room has no snapshot with this piece at {at}"


def _due(record: Record, get: Lookup) -> Iterator[str]:
    words = keys.split(record.key[1])
    if words[-1] == ROOM_DUE and len(words) != 4:
        yield "the key does not name the room to remove"


def _shown(info: Info) -> Listed:
    return Listed(info.epoch, info.created_ms, info.by, info.meta)


RULES = [
    Rule(ROOMS, _listed),
    Rule(ROOM, _room),
    Rule(LOG, _log),
    Rule(SNAPSHOTS, _snapshot),
    Rule("due", _due),
]
