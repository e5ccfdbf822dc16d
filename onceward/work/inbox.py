"""The inbox: deduplicates messages by idempotency key.

`accept` writes the record of the key, the job and its entry on the schedule in one commit. A
message with a known key gets the receipt of the first one, with the state and result of its job. A
key is kept until the end of its job, and for the retention of its queue after that. Each queue and
each caller has separate keys.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any
from zlib import crc32

import msgspec

from onceward import keys, limits
from onceward.api.queues import QueueSettings
from onceward.errors import BadInput, KeyReused, OncewardError
from onceward.job_options import NO_OPTIONS, JobOptions, admit_options
from onceward.json_values import encode
from onceward.keys import Key
from onceward.schedule import (
    Accepted,
    Dedupe,
    Job,
    Schedule,
    admit_queue,
    job_key,
)
from onceward.schedule.records import merge_key
from onceward.schedule.waiting import read_to_wait
from onceward.store.transaction import Transaction
from onceward.store.user_records import joins
from onceward.tracing import Trace
from onceward.work.merging import MERGE_WRITES, Merge, merged

# The maximum number of writes of `accept`: the dedupe record, the job, its entry, the head of its
# order key and the gate of its limit key.
ACCEPT_WRITES = 5
# The same without order key and limit key.
PLAIN_WRITES = 3
# The location of the value in errors.
_MESSAGE = ("message", "body")
_SPREADS = [f"{number:02x}" for number in range(256)]


class Receipt(msgspec.Struct, frozen=True):
    """The response to a message, the same for the first one and for its repeats."""

    id: str
    """The id of the job."""
    key: str
    """The idempotency key; empty if the message has none."""
    state: str
    """One of `onceward.api.jobs.State`."""
    duplicate: bool
    result: Any = None
    """The result of the handler, once the job has succeeded."""
    reason: str = ""
    """Why the last attempt failed."""
    same_body: bool = True
    """Whether the body equals that of the first message, in queues that only count differences."""


class Inbox:
    """Accepts messages, by the settings of their queues."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    async def accept(
        self,
        tx: Transaction,
        queue: str,
        body: Any,
        options: JobOptions = NO_OPTIONS,
        *,
        key: str | None = None,
        caller: str = "",
        due_ms: int = 0,
        trace: Trace | None = None,
        merge: Merge | None = None,
    ) -> Receipt:
        """Accept a message, once for each key. Without a key, the queue's setting `key_fields`
        derives it from the body. Without either, each call adds a job. With `merge`, messages with
        the same debounce key or batch key share a job.

        Raises `BadInput`, `QueueFull`, and `KeyReused` if the key was used with another body,
        unless the queue only counts that. When it raises, it has written nothing.
        """
        admit_queue(queue)
        settings = self._schedule.settings(queue)
        if key is None and settings.key_fields:
            key = derived_key(body, settings.key_fields, queue)
        dedupe = None
        if key is None:
            admit_caller(caller)
        else:
            admit_key(key, caller)
            record_key = dedupe_key(queue, caller, key)
            mark = fingerprint(body, settings.fingerprint)
            known = await tx.get(record_key, Accepted)
            if known is not None:
                return await self._again(tx, record_key, known, key, mark, settings)
            dedupe = Dedupe(*record_key, mark)
        if merge is not None:
            id_, job = await merged(
                *(tx, self._schedule, queue, body, options, merge),
                caller=caller,
                trace=trace,
                settings=settings,
            )
            if dedupe is not None:
                # Unlike the key of a job, it expires by itself: a job can have many of them.
                kept_ms = settings.key_retention_ms
                until_ms = None if kept_ms is None else tx.now_ms + kept_ms
                tx.put(record_key, Accepted(id_, mark), expires_at_ms=until_ms)
            return Receipt(id_, key or "", job.state, duplicate=False)
        self._schedule.admit(tx, queue)
        id_, job = await self._schedule.add(
            tx,
            queue,
            body,
            options,
            due_ms=due_ms,
            dedupe=dedupe,
            caller=caller,
            trace=trace,
            settings=settings,
        )
        if dedupe is not None:
            tx.put(record_key, Accepted(id_, mark))
        return Receipt(id_, key or "", job.state, duplicate=False)

    def key_of(self, queue: str, body: Any) -> str:
        """The key of a message, derived from fields of its body. Raises `BadInput`, with the code
        `missing_key` if the queue has no `key_fields`."""
        admit_queue(queue)
        return derived_key(body, self._schedule.settings(queue).key_fields, queue)

    def read_to_accept(
        self,
        queue: str,
        body: Any,
        key: str | None = None,
        caller: str = "",
        options: JobOptions = NO_OPTIONS,
        merge: Merge | None = None,
    ) -> list[Key]:
        """The records that `accept` reads, unless it rejects the message."""
        try:
            admit_queue(queue)
            admit_caller(caller)
            found = [] if merge is None else [merge_key(queue, caller, merge.name)]
            if options.shared:
                admit_options(options)
                found += read_to_wait(queue, options, self._schedule.slots)
            if key is None:
                fields = self._schedule.settings(queue).key_fields
                if not fields:
                    return found
                key = derived_key(body, fields, queue)
            admit_key(key, caller)
        except BadInput:
            return []
        return [*found, dedupe_key(queue, caller, key)]

    async def fetch(self, tx: Transaction, reads: Sequence[Key]) -> None:
        """Fetch the reads of several messages, and the jobs of those that were accepted before."""
        await tx.fetch(reads)
        known = []
        for read in reads:
            if tx.seen.get(read) is not None and read[0].startswith("inbox#"):
                try:
                    accepted = tx.peek(read, Accepted)
                except OncewardError:
                    continue  # damaged: fails the one that reads it
                if accepted is not None:
                    known.append(job_key(accepted.id))
        if known:
            await tx.fetch(known)

    @joins
    async def find(
        self, tx: Transaction, queue: str, key: str, *, caller: str = ""
    ) -> Receipt | None:
        """The receipt for a key, or None."""
        admit_queue(queue)
        admit_key(key, caller)
        known = await tx.get(dedupe_key(queue, caller, key), Accepted)
        return None if known is None else await self._receipt(tx, known, key, same_body=True)

    async def _again(
        self,
        tx: Transaction,
        record_key: Key,
        known: Accepted,
        key: str,
        mark: str,
        settings: QueueSettings,
    ) -> Receipt:
        if known.fingerprint == mark:
            return await self._receipt(tx, known, key, same_body=True)
        if settings.mismatch == "reject":
            raise KeyReused(
                f"the key {key[:200]!r} was already used with another body; send a new message "
                "with a new key",
                id=known.id,
            )
        known.differences += 1
        record = tx.seen[record_key]  # None if this transaction sent the first message
        tx.put(record_key, known, expires_at_ms=record.expires_at_ms if record else None)
        return await self._receipt(tx, known, key, same_body=False)

    async def _receipt(
        self, tx: Transaction, known: Accepted, key: str, *, same_body: bool
    ) -> Receipt:
        job = await tx.get(job_key(known.id), Job)
        if job is None:  # its queue keeps keys longer than jobs
            return Receipt(known.id, key, known.state, True, same_body=same_body)
        return Receipt(known.id, key, job.state, True, job.result, job.reason, same_body)


def accept_writes(arguments: Mapping[str, Any]) -> int:
    """The maximum number of writes of `Inbox.accept` with these arguments."""
    if "merge" in arguments:
        return MERGE_WRITES
    return ACCEPT_WRITES if arguments.get("options", NO_OPTIONS).shared else PLAIN_WRITES


def dedupe_key(queue: str, caller: str, key: str) -> Key:
    """The key of an idempotency key's record; the partitions spread the load."""
    sort = keys.join(caller, key)
    spread = _SPREADS[crc32(sort.encode()) & 0xFF]
    if len(sort) > limits.SORT_BYTES_MAX // 4:
        # Any text of four bytes per character fits. Longer keys are stored as their digest. It
        # starts with "!", which no shorter key does.
        sort = "!" + blake2b(sort.encode(), digest_size=32).hexdigest()
    return f"inbox#{spread}#{queue}", sort


def derived_key(body: Any, fields: Sequence[str], queue: str) -> str:
    """The idempotency key derived from the named fields of a message, which may be paths such as
    `order.id`."""
    if not fields:
        raise BadInput(
            f"a message for {queue!r} needs an idempotency key; pass one, or set key_fields of the "
            "queue to derive it from the body",
            code="missing_key",
        )
    values = [_field(body, name) for name in fields]
    if any(value is msgspec.UNSET or value is None or value == "" for value in values):
        missing = [n for n, v in zip(fields, values, strict=True) if v in (msgspec.UNSET, None, "")]
        raise BadInput(
            f"the message lacks {', '.join(missing)}, the fields of its idempotency key; add them",
            code="missing_key",
            fields=missing,
        )
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return encode(values, _MESSAGE, order="sorted").decode()


def fingerprint(body: Any, fields: Sequence[str] | None) -> str:
    """A digest of the fields that must be equal for the same key; None means the whole body."""
    if fields is not None:
        values = [_field(body, name) for name in fields]
        body = [None if value is msgspec.UNSET else [value] for value in values]
    text = encode(body, _MESSAGE, order="sorted")  # equal for equal JSON
    return blake2b(text, digest_size=16).hexdigest()


def admit_key(key: str, caller: str) -> None:
    _admit_bytes("an idempotency key", key, 1, limits.DEDUPE_KEY_BYTES_MAX)
    admit_caller(caller)


def admit_caller(caller: str) -> None:
    if caller != "":
        _admit_bytes("a caller's id", caller, 0, limits.CALLER_ID_BYTES_MAX)


def _admit_bytes(what: str, text: Any, least: int, most: int) -> None:
    if not isinstance(text, str):
        raise BadInput(f"{what} must be text, not {type(text).__name__}", code="bad_key")
    size_bytes = len(text.encode(errors="surrogatepass"))
    if not least <= size_bytes <= most:
        raise BadInput(
            f"{what} must have {least} to {most} bytes, not {size_bytes}", code="bad_key"
        )


def _field(body: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(body, dict) or name not in body:
            return msgspec.UNSET
        body = body[name]
    return body
