"""Intake: takes messages in, many in one commit where many come at the same time.

A lone message is a transaction of its own. While one is under way, those that come in the
same turn of the event loop share a transaction, each with a verdict of its own: that costs
little more than half as much for each.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple

from onceward import limits
from onceward.errors import (
    BadInput,
    EngineStopped,
    OncewardError,
    OutcomeUnknown,
    TooLarge,
    Unavailable,
)
from onceward.parts.inbox import ACCEPT_WRITES, PLAIN_WRITES, Inbox, Receipt
from onceward.parts.schedule import admit_queue
from onceward.service.job import send_options
from onceward.store import Store
from onceward.transaction import Transaction, encode

_AT_ONCE = (limits.COMMIT_WRITES_MAX - 1) // ACCEPT_WRITES
# What a job has besides its body: its keys, in several records, and the records themselves.
_BESIDE_BYTES = 20_000
_OPTIONS = {
    *("body", "key", "caller", "delay_s", "due_ms"),
    *("order_key", "limit_key", "priority", "attempts_max"),
}

Verdict = Receipt | OncewardError


class Waiting(NamedTuple):
    """A message that shares a transaction with others."""

    queue: str
    body: Any
    options: dict[str, Any]
    answer: "asyncio.Future[Receipt]"

    @property
    def writes(self) -> int:
        """How many writes of a commit it takes at the most."""
        plain = "order_key" not in self.options and "limit_key" not in self.options
        return PLAIN_WRITES if plain else ACCEPT_WRITES


class Intake:
    """Takes messages in, for one application on one node."""

    def __init__(self, store: Store, inbox: Inbox) -> None:
        self._store = store
        self._inbox = inbox
        self._under_way = 0
        self._waiting: list[Waiting] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._context = copy_context()

    async def accept(self, queue: str, body: Any, options: dict[str, Any]) -> Receipt:
        """Take a message in; raises what `Inbox.accept` and `Store.run` raise."""
        if not self._under_way:
            taking = self._store.run(lambda tx: self._inbox.accept(tx, queue, body, **options))
        else:
            taking = self._together(queue, body, options)
        self._under_way += 1
        try:
            return await taking
        finally:
            self._under_way -= 1

    async def finish(self) -> None:
        """Wait for what is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _together(self, queue: str, body: Any, options: dict[str, Any]) -> Receipt:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Receipt] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._take, context=self._context)
        self._waiting.append(Waiting(queue, body, options, answer))
        return await answer

    def _take(self) -> None:
        """Take in all that has come in this turn of the loop."""
        waiting, self._waiting = self._waiting, []
        piece: list[Waiting] = []
        room = limits.COMMIT_WRITES_MAX - 1
        for message in waiting:
            if message.writes > room:
                self._spawn(piece)
                piece, room = [], limits.COMMIT_WRITES_MAX - 1
            piece.append(message)
            room -= message.writes
        self._spawn(piece)

    def _spawn(self, messages: list[Waiting]) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._commit(messages), context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit(self, messages: list[Waiting]) -> None:
        try:
            verdicts = await self._store.run(partial(_accept_all, self._inbox, messages))
        except TooLarge as too_large:
            if len(messages) == 1:
                _tell(messages, [too_large])
                return
            half = len(messages) // 2
            for piece in (messages[:half], messages[half:]):
                self._spawn(piece)
            return
        except Exception as error:
            verdicts = [error] * len(messages)
        _tell(messages, verdicts)


async def _accept_all(
    inbox: Inbox, messages: list[Waiting], tx: Transaction
) -> list[Receipt | Exception]:
    verdicts: list[Receipt | Exception] = []
    for queue, body, options, _ in messages:
        try:
            verdicts.append(await inbox.accept(tx, queue, body, **options))
        except (EngineStopped, OutcomeUnknown, Unavailable):
            raise
        except Exception as refused:  # it has written nothing
            verdicts.append(refused)
    return verdicts


def _tell(messages: list[Waiting], verdicts: Sequence[Receipt | Exception]) -> None:
    for message, verdict in zip(messages, verdicts, strict=True):
        if message.answer.done():  # whoever sent it has gone
            continue
        if isinstance(verdict, Exception):
            message.answer.set_exception(verdict)
        else:
            message.answer.set_result(verdict)


async def accept_many(
    store: Store, inbox: Inbox, queue: str, messages: Sequence[Mapping[str, Any]]
) -> list[Verdict]:
    """Take messages in, in as few commits as hold them; one verdict for each, in their order."""
    admit_queue(queue)
    verdicts: list[Verdict] = []
    for piece in _pieces([_message(store, message) for message in messages]):
        verdicts += await store.run(partial(_accept_each, inbox, queue, piece))
    return verdicts


async def _accept_each(
    inbox: Inbox, queue: str, messages: list[dict[str, Any] | OncewardError], tx: Transaction
) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for message in messages:
        if isinstance(message, OncewardError):
            verdicts.append(message)
            continue
        try:
            verdicts.append(await inbox.accept(tx, queue, **message))
        except BadInput as refused:
            verdicts.append(refused)
    return verdicts


def _message(store: Store, message: Any) -> dict[str, Any] | OncewardError:
    """The arguments of `accept` for a message, or why there are none."""
    if not isinstance(message, Mapping) or "body" not in message:
        return BadInput(f"a message is a mapping with a body, not {str(message)[:100]}")
    unknown = [str(name) for name in message if name not in _OPTIONS]
    if unknown:
        return BadInput(f"a message has no option {', '.join(sorted(unknown))}")
    try:
        return send_options(store, dict(message))
    except BadInput as refused:
        return refused


def _pieces(
    messages: list[dict[str, Any] | OncewardError],
) -> Iterator[list[dict[str, Any] | OncewardError]]:
    """What fits into one commit each, by number and size."""
    piece: list[dict[str, Any] | OncewardError] = []
    piece_bytes = 0
    for message in messages:
        message_bytes = _size_bytes(message)
        full = piece_bytes + message_bytes > limits.COMMIT_BYTES_MAX
        if piece and (full or len(piece) == _AT_ONCE):
            yield piece
            piece, piece_bytes = [], 0
        piece.append(message)
        piece_bytes += message_bytes
    if piece:
        yield piece


def _size_bytes(message: dict[str, Any] | OncewardError) -> int:
    try:
        if isinstance(message, dict):
            return _BESIDE_BYTES + len(encode(message["body"], ("message", "body")))
    except BadInput:
        pass  # it will be refused
    return 0
