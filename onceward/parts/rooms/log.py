"""A room's log and its snapshots, as records.

A record of the log holds the steps of one commit and stands under the last one's sequence
number; a snapshot is several pieces under the sequence number it was made at.
"""

from collections.abc import Sequence

import msgspec

from onceward import keys, limits
from onceward.parts.rooms.records import Head, Info, log_partition, snapshot_partition
from onceward.parts.rooms.room import Entry, Piece, Room
from onceward.parts.rooms.schemas import Shapes
from onceward.transaction import Transaction

_NEWEST_RECORDS = 20  # so many are read at first: each may be large
_read_record = msgspec.json.Decoder(list[Entry]).decode
_write_entry = _write_record = msgspec.json.Encoder().encode


async def load(tx: Transaction, id_: str, info: Info, head: Head, seq: int) -> Room:
    """A room at a sequence number, from the last snapshot before it and the log behind that."""
    at, pieces = max(one for one in head.snapshots if one[0] <= seq)
    room = Room(head.epoch, seq=at, shapes=Shapes(info.schemas))
    if pieces:
        start, end = keys.below(at)
        partition = snapshot_partition(id_, head.epoch)
        rows = await tx.scan(partition, Piece, start=start, end=end, limit=pieces)
        for row in rows:
            room.add_piece(row.value)
    for entry in await entries_of(tx, id_, head.epoch, at, seq):
        room.follow(entry)
    room.forget(head.floor, tx.now_ms)
    return room


async def entries_of(tx: Transaction, id_: str, epoch: str, since: int, until: int) -> list[Entry]:
    """The steps behind `since`, up to `until`. A record stands under its last one."""
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
    return found


async def newest(
    tx: Transaction, id_: str, head: Head, steps_max: int, bytes_max: int
) -> list[Entry]:
    """The last steps, in order: about so many at the most, from about so many bytes of the log."""
    found: list[Entry] = []  # the last one first
    partition, page = log_partition(id_, head.epoch), _NEWEST_RECORDS
    start, end = keys.number(head.floor + 1), keys.number(head.seq + 1)
    size = 0
    while True:
        rows = await tx.scan(partition, msgspec.Raw, start=start, end=end, limit=page, reverse=True)
        for row in rows:
            if size >= bytes_max or len(found) >= steps_max:
                break
            size += len(row.value)
            found += reversed(_read_record(row.value))
            end = row.key[1]
        else:
            if len(rows) == page:
                page = min(2 * page, limits.SCAN_RECORDS_DEFAULT)
                continue
        return [entry for entry in reversed(found) if entry.seq > head.floor]


async def sweep(tx: Transaction, id_: str, head: Head) -> None:
    """Remove some records that nobody needs any more."""
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
    """Entries in as few records as they fit in, as JSON, each with its last sequence number."""
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
