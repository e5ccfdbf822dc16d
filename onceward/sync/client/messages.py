"""Synchronous classes. Written by `make generate` from `onceward.client.operations.messages`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onceward.api import messages as api
from onceward.client.operations.messages import MessagesOperations as AsyncMessagesOperations
from onceward.sync.bridge import Facade


class MessagesOperations(Facade[AsyncMessagesOperations]):
    """Operations on messages: send with an idempotency key, one by one or in batches."""

    def send(
        self,
        queue: str,
        body: Any,
        *,
        order_key: str | None = None,
        limit_key: str | None = None,
        priority: int | None = None,
        attempts_max: int | None = None,
        tags: Sequence[str] = (),
        key: str | None = None,
        delay_s: float | None = None,
        due_ms: int | None = None,
        debounce_key: str | None = None,
        debounce_s: float | None = None,
        debounce_max_s: float | None = None,
        batch_key: str | None = None,
        batch_s: float | None = None,
        batch_size: int | None = None,
        wait_s: float = 0.0,
    ) -> api.Receipt:
        """Send a message."""
        return self._portal.run(
            self._target.send(
                queue,
                body,
                order_key=order_key,
                limit_key=limit_key,
                priority=priority,
                attempts_max=attempts_max,
                tags=tags,
                key=key,
                delay_s=delay_s,
                due_ms=due_ms,
                debounce_key=debounce_key,
                debounce_s=debounce_s,
                debounce_max_s=debounce_max_s,
                batch_key=batch_key,
                batch_s=batch_s,
                batch_size=batch_size,
                wait_s=wait_s,
            )
        )

    def send_many(
        self, queue: str, messages: Sequence[api.Message | Mapping[str, Any]]
    ) -> list[api.MessageVerdict]:
        """Send many messages."""
        return self._portal.run(self._target.send_many(queue, messages))
