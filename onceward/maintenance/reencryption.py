"""Re-encryption of stored secrets after a server key was replaced.

It runs in the background if a node has several keys, or the database was used with others. When it
is complete, it removes the old keys from the database and logs that they are obsolete.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec

from onceward import keys, limits
from onceward.errors import PASSING, SecretUnreadable
from onceward.keys import Key
from onceward.maintenance.key_source import ALARM, RECORD, KeyRecord, lost_message
from onceward.schedule import Job, job_partition
from onceward.store import Store
from onceward.store.transaction import Row, Transaction
from onceward.webhooks import endpoints
from onceward.webhooks.timers import (
    WEBHOOKS,
    TimerTable,
    Webhook,
    encrypt_headers,
    open_headers,
    timer_partition,
)

logger = logging.getLogger("onceward")

_PAGE = 100


class Reencryption:
    """Encrypts the secrets of one database with the first server key."""

    def __init__(self, store: Store, timers: TimerTable, slots: int) -> None:
        self._store = store
        self._timers = timers
        self._slots = slots
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start if there may be work: several keys, or secrets under missing keys."""
        several = len(self._store.server_keys.checks) > 1
        if several or self._store.alarms.get(ALARM) is not None:
            self._task = asyncio.create_task(self._run(), name="onceward-reencryption")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                unreadable = await self.run_once()
            except PASSING:
                unreadable = -1
            if unreadable == 0:
                return
            await self._store.clock.sleep(limits.REENCRYPT_S)

    async def run_once(self) -> int:
        """Encrypt all secrets with the first key; return how many records cannot be decrypted."""
        unreadable = 0
        async for row in self._rows(endpoints.ENDPOINTS):
            caller, id_ = keys.split(row.key[1])
            unreadable += not await self._store.run(
                partial(endpoints.reencrypt, id_=id_, caller=caller)
            )
        for slot in range(self._slots):
            async for row in self._rows(timer_partition(slot)):
                caller, id_ = keys.split(row.key[1])
                unreadable += not await self._store.run(
                    partial(self._timers.reencrypt, id_=id_, caller=caller)
                )
            async for row in self._rows(job_partition(slot)):
                if keys.split(row.key[1])[-1] == "job" and WEBHOOKS.encode() in row.value:
                    unreadable += not await self._store.run(partial(_reencrypt_job, key=row.key))
        await self._store.run(partial(self._forget_others, unreadable=unreadable))
        return unreadable

    async def _rows(self, partition: str) -> AsyncIterator[Row[bytes]]:
        """All records of a partition as JSON, page by page."""
        start = ""
        while True:

            async def page(tx: Transaction, start: str = start) -> list[Row[Any]]:
                return await tx.scan(partition, msgspec.Raw, start=start, limit=_PAGE)

            rows = await self._store.run(page)
            for row in rows:
                yield Row(row.key, bytes(row.value))
            if len(rows) < _PAGE:
                return
            start = keys.after(rows[-1].key[1])

    async def _forget_others(self, tx: Transaction, *, unreadable: int) -> None:
        own = self._store.server_keys.checks
        first = next(iter(own))
        record = await tx.get(RECORD, KeyRecord)
        if record is None:
            return
        others = record.checks.keys() - {first}
        if unreadable:
            lost = sorted(others - own.keys())
            message = f"{lost_message(lost)} ({unreadable} endpoints, timers and calls)"
            self._store.alarms.raise_(ALARM, message)
            return
        if others:
            tx.put(RECORD, KeyRecord(record.id, {first: own[first]}))

        def tell() -> None:
            self._store.alarms.clear(ALARM)
            logger.info(
                "all secrets are encrypted with the server key %s; once all nodes use it, the "
                "others (%s) can be removed",
                *(first, ", ".join(sorted(others | (own.keys() - {first}))) or "none"),
            )

        tx.on_durable(tell) if others else tell()


async def _reencrypt_job(tx: Transaction, key: Key) -> bool:
    """Re-encrypt a waiting or failed webhook call, whose job has the headers of its timer."""
    job = await tx.get(key, Job)
    if job is None or job.queue != WEBHOOKS:
        return True
    try:
        webhook = msgspec.convert(job.body, Webhook)
    except msgspec.ValidationError:
        return True  # not a webhook call of ours
    headers = webhook.call.headers
    if all(map(tx.server_keys.is_current, headers.values())):
        return True
    try:
        opened = open_headers(webhook.call, tx.server_keys, webhook.caller, webhook.timer)
    except SecretUnreadable:
        return False
    call = msgspec.structs.replace(webhook.call, headers=opened)
    call = encrypt_headers(call, tx.server_keys, webhook.caller, webhook.timer)
    job.body = msgspec.to_builtins(msgspec.structs.replace(webhook, call=call))
    tx.put(key, job, expires_at_ms=tx.expiry(key))
    return True
