"""Operations on messages: send with an idempotency key, one by one or in batches."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from onceward import limits
from onceward.api.operation import Body, Operation, Query
from onceward.job_options import RequestedOptions

Milliseconds = Annotated[int, Meta(ge=0, le=limits.KEY_NUMBER_MAX)]
MergeMs = Annotated[int, Meta(ge=0, le=limits.MERGE_S_MAX * 1_000)]
SharedKey = Annotated[str, Meta(min_length=1, max_length=limits.ORDER_KEY_BYTES_MAX)]
Token = Annotated[str, Meta(min_length=1)]
WaitMs = Annotated[int, Meta(ge=0, le=limits.WAIT_MS_MAX)]


class Message(RequestedOptions, frozen=True, kw_only=True):
    """A message to send, with the options of its job."""

    body: Any
    """The body of the message: any JSON value."""
    key: str | None = None
    """The idempotency key. Without one, it is made from fields of the body, if the queue has
    `key_fields`, or else it is the header Idempotency-Key."""
    delay_ms: Milliseconds | None = None
    """The delay until the job is due."""
    due_ms: Milliseconds | None = None
    """The time when the job is due, in place of a delay."""
    debounce_key: SharedKey | None = None
    """A later message with this key replaces the body of the job, until it starts."""
    debounce_ms: MergeMs | None = None
    """The time from the last message of the debounce key to the start of the job."""
    debounce_max_ms: MergeMs | None = None
    """The longest time from the first message of the debounce key; default: no limit."""
    batch_key: SharedKey | None = None
    """A later message with this key is added to the body of the job, a list, until it starts."""
    batch_ms: MergeMs | None = None
    """The time from the first message of the batch key to the start of the job."""
    batch_size: Annotated[int, Meta(ge=1, le=limits.MERGE_MESSAGES_MAX)] | None = None
    """The number of messages with which the job starts at once; default: 1,000."""


class MessageBatch(Body):
    """Messages, each accepted or rejected on its own."""

    messages: Annotated[list[Message], Meta(max_length=limits.BATCH_MESSAGES_MAX)]
    """Messages with `body`, and with `key` and other options."""


class Wait(Query):
    """How long to wait for the end of the job."""

    wait_ms: WaitMs = 0
    """How long to wait for the end of the job."""


class Receipt(msgspec.Struct, omit_defaults=True):
    """The receipt of a message: the same for the first request and for its repeats."""

    id: str
    key: str
    state: str
    duplicate: bool
    result: Any = None
    """The return value of the handler, once the job has succeeded."""
    reason: str = ""
    """The error of the last attempt, if one failed."""
    same_body: bool = True


class RejectedMessage(msgspec.Struct):
    """A message of a batch that was not accepted."""

    code: str
    detail: str
    status: int


class MessageVerdict(msgspec.Struct, omit_defaults=True):
    """The outcome of one message of a batch: accepted or rejected."""

    accepted: Receipt | None = None
    rejected: RejectedMessage | None = None


class MessageVerdicts(msgspec.Struct):
    """One verdict for each message, in the order of the request."""

    results: list[MessageVerdict]


SEND = Operation(
    name="messages.send",
    method="POST",
    path="/v1/inbox/{queue}",
    summary="Send a message",
    description="The message is durable when the response arrives. The same key takes effect once.",
    scope="send:{queue}",
    body=Message,
    query=Wait,
    headers=("Idempotency-Key",),
    response=Receipt,
    statuses=(202, 200),
    errors=("bad_name", "bad_key", "missing_key", "key_reused", "value_too_large"),
    waits=True,
    fills=("Idempotency-Key",),
)

SEND_MANY = Operation(
    name="messages.send_many",
    method="POST",
    path="/v1/inbox/{queue}/batch",
    summary="Send many messages",
    description="With the header Idempotency-Key, messages do not need separate keys.",
    scope="send:{queue}",
    body=MessageBatch,
    body_bytes_max=limits.MESSAGES_BYTES_MAX,
    headers=("Idempotency-Key",),
    response=MessageVerdicts,
    errors=("bad_name", "bad_key"),
    returns="results",
    fills=("Idempotency-Key",),
)
