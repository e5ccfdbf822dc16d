"""A node's cache of queue settings."""

import asyncio
from collections.abc import Callable

from onceward import keys, limits
from onceward.engine.base import Delete, Put, Record
from onceward.errors import OncewardError, Unavailable
from onceward.json_values import decode
from onceward.schedule import DEFAULT, SETTINGS, QueueSettings
from onceward.store import Store


class SettingsCache:
    """The settings of all queues: call it with a queue's name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._settings: dict[str, QueueSettings] = {}
        self._hooks: list[Callable[[str], None]] = []
        self._changed = asyncio.Event()
        self._own_changes = 0
        self._own: dict[str, int] = {}
        self._unhook = store.on_change(SETTINGS, self._saw)

    def __call__(self, queue: str, /) -> QueueSettings:
        return self._settings.get(queue, DEFAULT)

    def on_change(self, hook: Callable[[str], None]) -> None:
        """Call `hook` with the name of each queue whose settings have changed."""
        self._hooks.append(hook)

    def names(self) -> list[str]:
        """The names of queues with settings."""
        return sorted(self._settings)

    async def load(self) -> None:
        """Reload all settings."""
        found: dict[str, QueueSettings] = {}
        begun = self._own_changes
        start, page = "", [Record(("", ""), b"", 0)] * limits.SCAN_RECORDS_MAX
        while len(page) == limits.SCAN_RECORDS_MAX:
            page = await self._store.engine.scan(
                SETTINGS, self._store.clock.now_ms(), start=start, limit=limits.SCAN_RECORDS_MAX
            )
            for record in page:
                found[keys.split(record.key[1])[0]] = _settings(record)
                start = keys.after(record.key[1])
        # Changes that this node made during the scan are newer than its result.
        for queue in sorted(found.keys() | self._settings.keys()):
            if self._own.get(queue, 0) <= begun:
                self._note(queue, found.get(queue))

    async def run(self) -> None:
        """Follow changes by other nodes until cancelled. Waits while the engine is unavailable."""
        if not self._store.engine.shared:
            await asyncio.Event().wait()
        with self._store.engine.watch(SETTINGS) as watch:
            watch.on_hint = self._changed.set
            while True:
                try:
                    async with asyncio.timeout(limits.POLL_ALONE_S):
                        await self._changed.wait()
                except TimeoutError:
                    pass
                self._changed.clear()
                try:
                    await self.load()
                except Unavailable:
                    await self._store.clock.sleep(limits.POLL_S)

    def close(self) -> None:
        """Stop following changes. Idempotent."""
        self._unhook, unhook = (lambda: None), self._unhook
        unhook()

    def _saw(self, write: Put | Delete) -> None:
        """Note a durable local commit."""
        queue = keys.split(write.key[1])[0]
        self._own_changes += 1
        self._own[queue] = self._own_changes
        settings = None
        if isinstance(write, Put):
            settings = _settings(Record(write.key, write.value, 0))
        self._note(queue, settings)

    def _note(self, queue: str, settings: QueueSettings | None) -> None:
        if self._settings.get(queue) == settings:
            return
        if settings is None:
            del self._settings[queue]
        else:
            self._settings[queue] = settings
        for hook in self._hooks:
            hook(queue)


def _settings(record: Record) -> QueueSettings:
    try:
        settings: QueueSettings = decode(record.value, QueueSettings, record.key)
        return settings
    except OncewardError:
        # Damaged, or of a newer version. Pause the queue rather than violate its settings, and
        # treat it as internal because it may be.
        return QueueSettings(paused=True, internal=True)
