"""Client methods for messages, from `onceward.api.messages`. Written by `make generate`."""

from collections.abc import Mapping, Sequence
from typing import Any

from onceward.api import messages as api
from onceward.api.arguments import as_structs, as_tuple, in_ms
from onceward.client.operations.base import Operations


class MessagesOperations(Operations):
    """Operations on messages: send with an idempotency key, one by one or in batches."""

    async def send(
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
        """Send a message.

        The message is durable when the response arrives. The same key takes effect once.

        - `queue`: The name of the queue.
        - `body`: The body of the message: any JSON value.
        - `order_key`: Jobs of one queue with the same order key run one after the other, in order.
        - `limit_key`: Jobs with the same limit key share the limit `limit_per_key` of the queue.
        - `priority`: The priority: 0 runs first; default: 5.
        - `attempts_max`: The number of attempts after which a failure is final. 0: no limit; None:
          the setting of the queue.
        - `tags`: Tags by which jobs can be found: up to 10, of 1 to 64 bytes each.
        - `key`: The idempotency key. Without one, it is made from fields of the body, if the queue
          has `key_fields`, or else it is the header Idempotency-Key.
        - `delay_s`: The delay until the job is due.
        - `due_ms`: The time when the job is due, in place of a delay.
        - `debounce_key`: A later message with this key replaces the body of the job, until it
          starts.
        - `debounce_s`: The time from the last message of the debounce key to the start of the job.
        - `debounce_max_s`: The longest time from the first message of the debounce key; default: no
          limit.
        - `batch_key`: A later message with this key is added to the body of the job, a list, until
          it starts.
        - `batch_s`: The time from the first message of the batch key to the start of the job.
        - `batch_size`: The number of messages with which the job starts at once; default: 1,000.
        - `wait_s`: How long to wait for the end of the job.

        Raises `KeyReused`, `BadInput` (bad_name, bad_key, missing_key, value_too_large).
        """
        return await self._transport.run(
            api.SEND,
            queue,
            body=api.Message(
                body=body,
                order_key=order_key,
                limit_key=limit_key,
                priority=priority,
                attempts_max=attempts_max,
                tags=as_tuple("tags", tags),
                key=key,
                delay_ms=in_ms("delay_s", delay_s),
                due_ms=due_ms,
                debounce_key=debounce_key,
                debounce_ms=in_ms("debounce_s", debounce_s),
                debounce_max_ms=in_ms("debounce_max_s", debounce_max_s),
                batch_key=batch_key,
                batch_ms=in_ms("batch_s", batch_s),
                batch_size=batch_size,
            ),
            query=api.Wait(wait_ms=in_ms("wait_s", wait_s)),
        )

    async def send_many(
        self, queue: str, messages: Sequence[api.Message | Mapping[str, Any]]
    ) -> list[api.MessageVerdict]:
        """Send many messages.

        With the header Idempotency-Key, messages do not need separate keys.

        - `queue`: The name of the queue.
        - `messages`: Messages with `body`, and with `key` and other options.

        Raises `BadInput` (bad_name, bad_key).
        """
        return (
            await self._transport.run(
                api.SEND_MANY,
                queue,
                body=api.MessageBatch(messages=as_structs("messages", messages, api.Message)),
            )
        ).results
