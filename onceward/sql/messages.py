"""Messages of an outbox: adding a row to it, and reading one."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Unpack

import msgspec

from onceward import limits
from onceward.api.arguments import unknown_name
from onceward.clock import Clock
from onceward.errors import BadInput
from onceward.ids import Ids
from onceward.job_options import (
    MERGE_NAMES,
    OPTION_NAMES,
    JobKeywords,
    MergeKeywords,
    admit_options,
    job_options,
)
from onceward.json_values import encode
from onceward.keys import admit_text
from onceward.quantities import milliseconds
from onceward.schedule import admit_job
from onceward.sql.connections import Kind, kind_of, lacks_tables
from onceward.work.inbox import admit_key
from onceward.work.merging import merge_of

_ids: Final = Ids(Clock().now_ms)
_NAMES: Final = OPTION_NAMES - {"order_key"} | {"delay_s", "due_ms", *MERGE_NAMES}
_NO_OUTBOX: Final = (
    "the database, or the search path of the connection, has no outbox; run `onceward outbox "
    "migrate URL`"
)
# Drivers infer the types of parameters from the casts, so that codecs of the application do not
# apply.
_INSERT: Final = {
    "postgresql": """
INSERT INTO onceward_outbox (message, queue, body, key, order_key, options)
VALUES (
    CAST(CAST(? AS text) AS uuid), CAST(? AS text), CAST(CAST(? AS text) AS jsonb),
    CAST(? AS text), CAST(? AS text), CAST(CAST(? AS text) AS jsonb)
)
""",
    "sqlite": """
INSERT INTO onceward_outbox (message, queue, body, key, order_key, options)
VALUES (?, ?, ?, ?, ?, ?)
""",
}


class EnqueueKeywords(JobKeywords, MergeKeywords, total=False):
    """The options of `enqueue`: those of the job, its due time, and those that make one job of
    several messages."""

    delay_s: float
    due_ms: int


class Row(NamedTuple):
    """A row of an outbox."""

    id: int
    message: str
    queue: str
    body: str
    key: str | None
    order_key: str | None
    options: str
    created_ms: int


def enqueue(
    connection: Any,
    queue: str,
    body: Any,
    *,
    key: str | None = None,
    **options: Unpack[EnqueueKeywords],
) -> str:
    """Enqueue a message in the current transaction of a connection; returns the message's id.

    If the transaction commits, the queue gets one job; if it is rolled back, none. Create the table
    with `onceward outbox migrate`, and read it with `App.sql_outbox`.

    Args:
        connection: A session or connection of SQLAlchemy, `django.db.connection`, a connection of
            psycopg or sqlite3. For asynchronous ones use `enqueue_async`.
        key: Idempotency key. Default: the id of the message.
        options: Those of `App.send`, without `caller`. `delay_s` counts from now. Messages of a
            queue with the same `order_key` run in the order of their transactions, which wait for
            each other.

    Raises `BadInput`, before anything is written, and the errors of the driver.
    """
    kind = kind_of(connection)
    if kind.asynchronous:
        raise BadInput(f"{type(connection).__name__} is asynchronous; use `await enqueue_async(…)`")
    message, statement, values = _statement(kind, connection, queue, body, key, options)
    try:
        kind.execute(connection, statement, values)
    except Exception as error:
        if lacks_tables(error):
            raise BadInput(_NO_OUTBOX) from error
        raise
    return message


async def enqueue_async(
    connection: Any,
    queue: str,
    body: Any,
    *,
    key: str | None = None,
    **options: Unpack[EnqueueKeywords],
) -> str:
    """Enqueue a message in the current transaction of an asynchronous connection.

    The connection is an `AsyncSession` or `AsyncConnection` of SQLAlchemy, or a connection of
    asyncpg, psycopg or aiosqlite. Everything else is as for `enqueue`.
    """
    kind = kind_of(connection)
    if not kind.asynchronous:
        raise BadInput(f"{type(connection).__name__} is not asynchronous; use `enqueue(…)`")
    message, statement, values = _statement(kind, connection, queue, body, key, options)
    try:
        await kind.execute(connection, statement, values)
    except Exception as error:
        if lacks_tables(error):
            raise BadInput(_NO_OUTBOX) from error
        raise
    return message


def _statement(
    kind: Kind,
    connection: Any,
    queue: str,
    body: Any,
    key: str | None,
    options: Mapping[str, Any],
) -> tuple[str, str, list[str | None]]:
    rest = {name: value for name, value in options.items() if name != "order_key"}
    order_key = options.get("order_key")
    message = _ids.uuid()
    # The row is read as a node would read it, so that bad input fails here.
    row = Row(
        *(0, message, queue, encode(body, ("message", "body")).decode(), key, order_key),
        *(encode(rest, ("message", "options")).decode(), 0),
    )
    arguments(row)
    dialect = kind.dialect(connection)
    if dialect == "postgresql":
        texts = {"body": row.body, "key": key, "order key": order_key, "options": row.options}
        for what, text in texts.items():
            if text is not None and ("\0" in text or "\\u0000" in text.replace("\\\\", "")):
                raise BadInput(
                    f"PostgreSQL cannot store NUL characters; remove those in the {what}"
                )
    return message, _INSERT[dialect], [*row[1:7]]


def arguments(row: Row) -> tuple[str, Any, dict[str, Any]]:
    """Queue, body and arguments of `Inbox.accept` for a row. Raises `BadInput`.

    Without a key, `key` is missing: the caller decides.
    """
    _admit_message(row.message)
    for what, text in (("body", row.body), ("options", row.options)):
        if len(text) > limits.OUTBOX_TEXT_MAX:
            raise BadInput(
                f"the {what} of the message must have at most {limits.OUTBOX_TEXT_MAX} "
                f"characters, not {len(text)}"
            )
    body = _decoded(row.body, "body")
    given = _decoded(row.options, "options")
    if not isinstance(given, dict):
        raise BadInput(f"the options of a message must be an object, not {row.options[:100]}")
    for name in given:
        if name not in _NAMES:
            raise unknown_name(name, sorted(_NAMES))
    if row.order_key is not None:
        given["order_key"] = row.order_key
    options = job_options(given)
    admit_options(options)
    found: dict[str, Any] = {"options": options}
    if row.key is not None:
        found["key"] = row.key
    if given.get("due_ms"):
        found["due_ms"] = given["due_ms"]
    if given.get("delay_s"):
        if "due_ms" in found:
            raise BadInput(
                f"a job can have a delay_s or a due_ms, not both ({given['delay_s']} and "
                f"{given['due_ms']}); omit one"
            )
        found["due_ms"] = row.created_ms + milliseconds(given["delay_s"], "a delay")
    if (merge := merge_of(given)) is not None:
        found["merge"] = merge
    admit_job(row.queue, body, options, found.get("due_ms", 0))
    if row.key is not None:
        admit_key(row.key, "")
        admit_text(row.key, "an idempotency key")
    return row.queue, body, found


def _admit_message(message: str) -> None:
    """It is kept until the row is deleted, with those of the other rows of a commit."""
    size_bytes = len(message.encode(errors="replace"))
    if not (message.isprintable() and 0 < size_bytes <= limits.OUTBOX_MESSAGE_BYTES_MAX):
        raise BadInput(
            f"the id of a message must have 1 to {limits.OUTBOX_MESSAGE_BYTES_MAX} bytes of "
            f"printable text, not {message[:100]!r}",
            code="bad_key",
        )


def _decoded(text: str, what: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadInput(
            f"the {what} of the message is not JSON: {error}: {text[:100]!r}; write it with "
            "`enqueue`",
            code="bad_value",
        ) from error
