"""Change hints between nodes by LISTEN and NOTIFY: the names of changed partitions.

A hint is sent after the commit and on a separate connection, since PostgreSQL serializes the
commits of transactions that notify. Changes within a few milliseconds share one notification.
Partitions are identified by a short hash, so a hint may arrive without a change.

A node that receives nothing from other nodes sends no hints. Each node therefore sends `hello` when
it starts to listen, and `there` at intervals. A node that receives `hello`, or the first message
from others, may have withheld changes, so it asks all nodes to check everything. Each message has
the name of its sender, which ignores it.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from onceward import limits
from onceward.engine.base import Check, Watch, Watchers, Write
from onceward.engine.postgres.link import Link
from onceward.ids import random_bytes

_HELLO: Final = "hello"
_THERE: Final = "there"
_MANY: Final = "*"
# After this many intervals without a message, a node assumes that it is the only one.
_SILENCE_MAX: Final = 3


class HashedWatchers(Watchers):
    """Watches with an index by the hash of their partition."""

    def __init__(self) -> None:
        super().__init__()
        self._watches: dict[str, set[Watch]] = {}

    def add(self, partition: str) -> Watch:
        watch = super().add(partition)
        self._watches.setdefault(hash_of(partition), set()).add(watch)
        return watch

    def remove(self, watch: Watch) -> None:
        super().remove(watch)
        hashed = hash_of(watch.partition)
        if watches := self._watches.get(hashed):
            watches.discard(watch)
            if not watches:
                del self._watches[hashed]

    def hint_hashed(self, hashed: Sequence[str]) -> None:
        for name in hashed:
            for watch in tuple(self._watches.get(name, ())):
                watch.hint()

    def hint_all(self) -> None:
        self.hint_hashed(list(self._watches))


class Hints:
    """Sends changes of this node to other nodes, and their changes to the watches of this node."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Link]],
        channel: str,
        watchers: HashedWatchers,
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._watchers = watchers
        self._changed: set[str] = set()
        self._many = False
        self._woken = asyncio.Event()
        self._name = random_bytes(6).hex()
        self._silence = _SILENCE_MAX

    @property
    def alone(self) -> bool:
        """Whether this node seems to be the only one."""
        return self._silence >= _SILENCE_MAX

    def open(self) -> None:
        """Start in the background. Without a connection, watches are polled."""
        self._serving = asyncio.get_running_loop().create_task(
            self._serve(), name="onceward-postgres-hints"
        )

    async def close(self) -> None:
        self._serving.cancel()
        await asyncio.wait([self._serving])

    def tell(self, writes: Sequence[Write], own: bool) -> None:
        """Hint the watches of this node, and soon those of other nodes. `own`: the caller has the
        result.
        """
        try:
            self._watchers.hint(writes, own=own)
        except Exception as error:  # a faulty callback of a watch must not fail the commit
            context = {"message": "a watch failed at a hint", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        if self._many or self.alone:
            return
        for write in writes:
            if type(write) is not Check:
                self._changed.add(write.key[0])
        self._many = len(self._changed) > limits.HINTS_MAX
        self._woken.set()

    async def _serve(self) -> None:
        pause_s = limits.RECONNECT_S_MIN
        while True:
            link: Link | None = None
            try:
                with suppress(Exception):  # hints may be lost
                    link = await self._connect()
                    link.on_closed(self._woken.set)
                    await link.listen(self._channel, self._heard)
                    # Changes before LISTEN were not reported.
                    self._watchers.hint_all()
                    await self._notify(link, _HELLO)
                    pause_s = limits.RECONNECT_S_MIN  # a server may permit LISTEN but not NOTIFY
                    await self._send_all(link)
            finally:
                if link is not None:
                    link.drop()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, limits.LISTEN_S_MAX)

    async def _send_all(self, link: Link) -> None:
        """Send hints until the connection is lost."""
        self._woken.set()  # there may be changes already
        while True:
            try:
                async with asyncio.timeout(limits.LISTEN_S_MAX):
                    await self._woken.wait()
            except TimeoutError:
                # This also detects a lost connection.
                self._silence += 1
                await self._notify(link, _THERE)
                continue
            self._woken.clear()
            if link.closed:
                return
            if self._many or self._changed:
                await self._pass_on(link)
                await asyncio.sleep(limits.HINT_PAUSE_S)

    async def _pass_on(self, link: Link) -> None:
        payload = _MANY if self._many else ",".join({hash_of(p) for p in self._changed})
        self._changed.clear()
        self._many = False
        try:
            await self._notify(link, payload)
        except BaseException:
            self._many = True  # the notification may be lost
            raise

    async def _notify(self, link: Link, payload: str) -> None:
        await link.fetch("SELECT pg_notify($1, $2)", self._channel, f"{self._name} {payload}")

    def _heard(self, text: str) -> None:
        name, _, payload = text.partition(" ")
        if name == self._name:
            return  # the local watches have the hint already
        if payload == _HELLO or self.alone:
            self._many = True
            self._woken.set()
        self._silence = 0
        if payload == _MANY:
            self._watchers.hint_all()
        elif payload not in (_HELLO, _THERE):
            self._watchers.hint_hashed(payload.split(","))


def hash_of(partition: str) -> str:
    return f"{zlib.crc32(partition.encode()):x}"
