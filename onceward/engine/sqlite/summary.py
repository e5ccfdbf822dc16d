"""Statistics of a database file, for `onceward db inspect`."""

import os
from collections.abc import Iterator

import msgspec

from onceward import limits
from onceward.engine.base import Record
from onceward.engine.invariants import due_ms
from onceward.engine.sqlite.journal import segment_paths
from onceward.engine.sqlite.owner import describe, is_owned
from onceward.engine.sqlite.reader import Progress, Snapshot, read, size_bytes, wal_path
from onceward.errors import BadInput
from onceward.keys import USER, after, kind_of

OTHER_KINDS = "(others)"

# The size of a value comes from the row's header, so long values are not read.
_COUNT = """
SELECT count(*), sum(octet_length(partition) + octet_length(sort) + octet_length(value))
FROM record WHERE partition >= ?
"""
_COUNT_TO = f"{_COUNT} AND partition < ?"
_FIRST_PARTITION = "SELECT min(partition) FROM record WHERE partition >= ?"
_EXPIRED = "SELECT count(*) FROM record WHERE expires_at_ms IS NOT NULL AND expires_at_ms <= ?"


class Amount(msgspec.Struct):
    """A number of records, and the bytes of their keys and values."""

    records: int = 0
    bytes: int = 0

    def add(self, record: Record, times: int = 1) -> None:
        partition, sort = record.key
        self.records += times
        self.bytes += times * (len(partition.encode()) + len(sort.encode()) + len(record.value))


class Due(msgspec.Struct):
    """The due entry with the earliest time."""

    partition: str
    sort: str
    due_ms: int
    late_ms: int
    """Negative if the time is in the future."""


class JournalSummary(msgspec.Struct):
    """The size of the journal, and its part that is not yet in the table."""

    segments: int
    bytes: int
    """The size of the files. They are reused, so this is not the amount of pending data."""
    commits: int
    """Commits that are not yet folded into the table."""
    records: int
    """Records that these commits changed or removed."""


class Summary(msgspec.Struct):
    """The statistics of a database at one moment."""

    path: str
    database_id: str
    format: int
    owner: str | None
    """The process that has it open."""
    last_seq: int
    folded_seq: int
    total: Amount
    kinds: dict[str, Amount]
    """Internal records, by the first word of their partitions."""
    user: dict[str, Amount]
    """Records of the application, by the first word of their partitions."""
    expired_records: int
    """Included in the counts, although no read returns them; the sweeper removes them."""
    oldest_due: Due | None
    table_records: int
    journal: JournalSummary
    file_bytes: dict[str, int]


def summarise(path: str, now_ms: int, progress: Progress = lambda *_: None) -> Summary:
    """Count the records of a database. Raises the errors of `reader.read`."""
    return read(path, lambda snapshot: _summary(snapshot, now_ms, progress))


def _summary(snapshot: Snapshot, now_ms: int, progress: Progress) -> Summary:
    path = snapshot.path
    with snapshot.reporting(progress, "counting records"):
        kinds = _count_table(snapshot)
        expired = int(str(snapshot.connection.execute(_EXPIRED, (now_ms,)).get))
    table_records = sum(amount.records for amount in kinds.values())
    # Rows of the journal replace those of the table.
    for row in snapshot.rows.values():
        amount = _amount(kinds, row.key[0])
        if (old := snapshot.stored(row.key)) is not None:
            amount.add(old, -1)
            expired -= old.absent_at(now_ms)
        if row.value:
            amount.add(row)
            expired += row.absent_at(now_ms)
    kinds = {kind: amount for kind, amount in sorted(kinds.items()) if amount.records}
    user = {kind: amount for kind, amount in kinds.items() if kind.startswith(USER)}
    journal_bytes = sum(segment.size_bytes for segment in snapshot.segments)
    return Summary(
        path=path,
        database_id=snapshot.database_id.hex(),
        format=snapshot.format,
        owner=describe(path) if is_owned(path) else None,
        last_seq=snapshot.last_seq,
        folded_seq=snapshot.folded_seq,
        total=Amount(
            sum(amount.records for amount in kinds.values()),
            sum(amount.bytes for amount in kinds.values()),
        ),
        kinds={kind: amount for kind, amount in kinds.items() if kind not in user},
        user={kind.removeprefix(USER): amount for kind, amount in user.items()},
        expired_records=expired,
        oldest_due=_oldest_due(snapshot, now_ms),
        table_records=table_records,
        journal=JournalSummary(
            segments=len(snapshot.segments),
            bytes=journal_bytes,
            commits=snapshot.last_seq - snapshot.folded_seq,
            records=len(snapshot.rows),
        ),
        file_bytes={
            os.path.basename(file): size_bytes(file)
            for file in (path, wal_path(path), *segment_paths(f"{path}-log."))
            if os.path.exists(file)
        },
    )


def _count_table(snapshot: Snapshot) -> dict[str, Amount]:
    """Amounts by kind, in one pass over the table, which is sorted by kind."""
    kinds: dict[str, Amount] = {}
    start = ""
    while (first := _first_partition(snapshot, start)) is not None:
        if len(kinds) >= limits.SUMMARY_KINDS_MAX:
            _count(snapshot, kinds.setdefault(OTHER_KINDS, Amount()), _COUNT, first)
            break
        kind = _kind(first)
        start = f"{kind}$" if first.startswith(f"{kind}#") else after(first)
        _count(snapshot, _amount(kinds, first), _COUNT_TO, first, start)
    return kinds


def _count(snapshot: Snapshot, amount: Amount, statement: str, *bounds: str) -> None:
    [(records, total_bytes)] = snapshot.connection.execute(statement, bounds)
    amount.records += int(str(records))
    amount.bytes += int(str(total_bytes))


def _amount(kinds: dict[str, Amount], partition: str) -> Amount:
    kind = _kind(partition)
    if kind not in kinds and len(kinds) >= limits.SUMMARY_KINDS_MAX:
        kind = OTHER_KINDS
    return kinds.setdefault(kind, Amount())


def _kind(partition: str) -> str:
    """The first word of a partition, with the prefix of the application's records."""
    prefix = USER if partition.startswith(USER) else ""
    return prefix + kind_of(partition.removeprefix(prefix))


def _first_partition(snapshot: Snapshot, start: str) -> str | None:
    found = snapshot.connection.execute(_FIRST_PARTITION, (start,)).get
    return None if found is None else str(found)


def _oldest_due(snapshot: Snapshot, now_ms: int) -> Due | None:
    found: Due | None = None
    for partition in _due_partitions(snapshot):
        for record in snapshot.scan(partition):
            if record.absent_at(now_ms):
                continue
            try:
                at_ms = due_ms(record.key[1])
            except BadInput:
                continue  # `onceward db check` reports it
            if found is None or at_ms < found.due_ms:
                found = Due(partition, record.key[1], at_ms, now_ms - at_ms)
            break
    return found


def _due_partitions(snapshot: Snapshot) -> Iterator[str]:
    fresh = {partition for partition in snapshot.changed if kind_of(partition) == "due"}
    start = "due#"
    while (partition := _first_partition(snapshot, start)) is not None and partition < "due$":
        fresh.discard(partition)
        yield partition
        start = after(partition)
    yield from fresh
