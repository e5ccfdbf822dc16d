"""Log entries and snapshots of a room, as records.

A record of the log contains the steps of one commit, and its key is the last sequence number. A
snapshot has several pieces, and its key is the sequence number at which it was made.
"""

from collections.abc import Sequence

import msgspec

from onceward import keys, limits
from onceward.errors import OncewardError, TooLarge
from onceward.json_values import decode
from onceward.rooms.records import Head, Info, head_key, log_partition, snapshot_partition
from onceward.rooms.room import Entry, Piece, Room, replayed
from onceward.rooms.schemas import Shapes
from onceward.store.transaction import Transaction

# If a commit has more other writes than this, the snapshot waits for the next one.
_BUSY_WRITES = 10
_NEWEST_RECORDS = 20  # the first page, because records may be large
_write_entry = _write_record = msgspec.json.Encoder().encode


async def load(tx: Transaction, id_: str, info: Info, head: Head, seq: int) -> Room:
    """Load a room at a sequence number, from the last snapshot before it and the log after that."""
    if info.epoch != head.epoch:
        raise damaged(id_, f"its settings are of epoch {info.epoch}, its head of {head.epoch}")
    at, pieces, digest = max(one for one in head.snapshots if one[0] <= seq)
    room = Room(head.epoch, seq=at, digest=digest, shapes=Shapes(info.schemas))
    if pieces:
        start, end = keys.below(at)
        partition = snapshot_partition(id_, head.epoch)
        rows = await tx.scan(partition, Piece, start=start, end=end, limit=pieces + 1)
        if len(rows) != pieces:
            raise damaged(id_, f"its snapshot at {at} has {len(rows)} of {pieces} pieces")
        for row in rows:
            room.add_piece(row.value)
    replayed(room, await entries_of(tx, id_, head.epoch, at, seq))
    if seq == head.seq and room.digest != head.digest:
        raise damaged(id_, f"its log does not match its head at {seq}: their digests differ")
    room.forget(head.floor, tx.now_ms)
    return room


def damaged(id_: str, why: str) -> OncewardError:
    """The error for a room with inconsistent records."""
    return OncewardError(
        f"the room {id_!r} is damaged: {why}. Run `onceward db check`, and restore a backup.",
        code="damaged",
        id=id_,
    )


async def entries_of(tx: Transaction, id_: str, epoch: str, since: int, until: int) -> list[Entry]:
    """All steps after `since` up to `until`. Raises `damaged` if some are missing."""
    found: list[Entry] = []
    if since >= until:
        return found
    start, page = keys.number(since + 1), limits.SCAN_RECORDS_DEFAULT
    while not found or found[-1].seq < until:
        rows = await tx.scan(log_partition(id_, epoch), list[Entry], start=start, limit=page)
        for row in rows:
            found += [entry for entry in row.value if since < entry.seq <= until]
            start = keys.after(row.key[1])
        if len(rows) < page:
            break
    _admit_run(id_, found, since, until)
    return found


def _admit_run(id_: str, entries: Sequence[Entry], since: int, until: int) -> None:
    """Raise `damaged` unless these are the entries after `since` up to `until`."""
    seq = since
    for entry in entries:
        seq += 1
        if entry.seq != seq:
            break
    else:
        if seq == until:
            return
        seq += 1
    raise damaged(id_, f"entry {seq} of its log is missing (expected {since + 1} to {until})")


async def newest(
    tx: Transaction, id_: str, head: Head, steps_max: int, bytes_max: int
) -> list[Entry]:
    """The last steps in order, limited by approximate numbers of steps and bytes."""
    found: list[Entry] = []  # newest first
    partition, page = log_partition(id_, head.epoch), _NEWEST_RECORDS
    start, end = keys.number(head.floor + 1), keys.number(head.seq + 1)
    size = 0
    since: int | None = None
    while True:
        rows = await tx.scan(partition, msgspec.Raw, start=start, end=end, limit=page, reverse=True)
        for row in rows:
            if size >= bytes_max or len(found) >= steps_max:
                break
            size += len(row.value)
            record: list[Entry] = decode(row.value, list[Entry], row.key)
            found += reversed(record)
            end = row.key[1]
        else:
            if len(rows) == page:
                page = min(2 * page, limits.SCAN_RECORDS_DEFAULT)
                continue
            since = head.floor  # the whole log
        entries = [entry for entry in reversed(found) if head.floor < entry.seq <= head.seq]
        if since is None:
            since = entries[0].seq - 1 if entries else head.seq
        _admit_run(id_, entries, since, head.seq)
        return entries


def writes_little(room: Room, info: Info, head: Head) -> bool:
    """Whether a commit of a few more steps writes only these and the head.

    Otherwise the room must be alone in its commit: in a shared one a snapshot or sweep would never
    be due.
    """
    seq, snapshots = room.seq + limits.ROOM_FEW_STEPS, head.snapshots
    return (
        head.swept >= snapshots[0][0]
        and not _is_due(room, head, seq)
        and (len(snapshots) == 1 or not _has_too_many(head, seq, info.keep))
    )


def snapshot(tx: Transaction, room: Room, head: Head, entries: Sequence[Entry]) -> list[Piece]:
    """The pieces of a snapshot after these steps, if one is due."""
    if not _is_due(room, head, entries[-1].seq) or tx.size > _BUSY_WRITES:
        return []
    return list(room.pieces())


async def write(
    tx: Transaction,
    id_: str,
    info: Info,
    head: Head,
    entries: Sequence[Entry],
    pieces: Sequence[Piece],
) -> Head:
    """Write steps and the snapshot after them, and remove some obsolete records. Returns the new
    head.
    """
    last = entries[-1]
    head = msgspec.structs.replace(
        head, seq=last.seq, digest=last.digest, snapshots=list(head.snapshots)
    )
    head.log_bytes += add_records(tx, id_, head.epoch, entries)
    if pieces:
        partition = snapshot_partition(id_, head.epoch)
        for number, piece in enumerate(pieces):
            tx.add((partition, keys.join(head.seq, number)), piece)
        head.snapshots.append((head.seq, len(pieces), head.digest))
        head.log_bytes = 0
    while _has_too_many(head, head.seq, info.keep):
        del head.snapshots[0]
    if head.swept < head.floor and tx.size <= _BUSY_WRITES + len(pieces):
        await _sweep(tx, id_, head)
    tx.put(head_key(id_), head)
    return head


def add_records(tx: Transaction, id_: str, epoch: str, entries: Sequence[Entry]) -> int:
    """Write steps to the log; return their size in bytes."""
    log = log_partition(id_, epoch)
    total = 0
    for last, record in records_of(entries):
        tx.add((log, keys.number(last)), record)
        total += len(record)
    if total > limits.ROOM_COMMIT_BYTES_MAX:
        raise TooLarge(
            f"the steps of a commit must have at most {limits.ROOM_COMMIT_BYTES_MAX} bytes, "
            f"not {total}; send fewer"
        )
    return total


async def _sweep(tx: Transaction, id_: str, head: Head) -> None:
    """Remove some obsolete records."""
    most, left = limits.ROOM_SWEEP_RECORDS, 0
    for partition, end in (
        (log_partition(id_, head.epoch), keys.number(head.floor + 1)),
        (snapshot_partition(id_, head.epoch), keys.number(head.floor)),
    ):
        rows = await tx.scan(partition, msgspec.Raw, end=end, limit=most)
        for row in rows:
            tx.delete(row.key)
        left = max(left, len(rows))
    if left < most:
        head.swept = head.floor


def records_of(entries: Sequence[Entry]) -> list[tuple[int, msgspec.Raw]]:
    """Entries as JSON in as few records as possible, each with its last sequence number."""
    if len(entries) == 1:
        return [(entries[0].seq, msgspec.Raw(_write_record(entries)))]
    records: list[tuple[int, msgspec.Raw]] = []
    texts: list[bytes] = []
    size = last = 0
    for entry in entries:
        text = _write_entry(entry)
        if texts and size + len(text) + 1 > limits.ROOM_PIECE_BYTES:
            records.append((last, msgspec.Raw(b"[%b]" % b",".join(texts))))
            texts, size = [], 0
        texts.append(text)
        size += len(text) + 1
        last = entry.seq
    records.append((last, msgspec.Raw(b"[%b]" % b",".join(texts))))
    return records


def _is_due(room: Room, head: Head, seq: int) -> bool:
    """Whether a snapshot is due when the room is at a sequence number."""
    return seq - head.snapshots[-1][0] >= limits.ROOM_SNAPSHOT_STEPS or (
        head.log_bytes >= max(limits.ROOM_SNAPSHOT_BYTES, room.state.bytes)
    )


def _has_too_many(head: Head, seq: int, keep: int) -> bool:
    """Whether the first snapshot is obsolete when the room is at a sequence number."""
    return len(head.snapshots) > 1 and (
        head.snapshots[1][0] <= seq - keep or len(head.snapshots) > limits.ROOM_SNAPSHOTS_MAX
    )
