"""Intake: accepts messages, many in one commit under load."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from onceward import limits
from onceward.errors import BadInput, OncewardError, QueueFull
from onceward.job_options import NO_OPTIONS
from onceward.json_values import encode
from onceward.observe.senders import Senders
from onceward.schedule import admit_queue
from onceward.store import Store
from onceward.store.sharing import SharedCommits
from onceward.store.transaction import Transaction
from onceward.work.inbox import ACCEPT_WRITES, PLAIN_WRITES, Inbox, Receipt
from onceward.work.job import AcceptArguments, accept_arguments

_AT_ONCE = limits.COMMIT_WRITES_MAX // ACCEPT_WRITES
# What a job has besides its body: its keys, in several records, and the records themselves.
_BESIDE_BYTES = 20_000

Verdict = Receipt | OncewardError


class Intake:
    """Takes messages in, for one application on one node, and counts them by sender."""

    def __init__(self, store: Store, inbox: Inbox, senders: Senders) -> None:
        self._store = store
        self._inbox = inbox
        self._senders = senders
        self._sharing = SharedCommits(store)

    async def accept(self, queue: str, body: Any, arguments: AcceptArguments) -> Receipt:
        """Take a message in; raises what `Inbox.accept` and `Store.run` raise."""
        shared = arguments.get("options", NO_OPTIONS).shared
        accepting = self._sharing.run(
            lambda tx: self._inbox.accept(tx, queue, body, **arguments),
            writes=ACCEPT_WRITES if shared else PLAIN_WRITES,
        )
        return await self._senders.count(queue, arguments.get("caller", ""), accepting)

    async def accept_within(
        self, tx: Transaction, queue: str, body: Any, arguments: AcceptArguments
    ) -> Receipt:
        """Take a message in as part of a transaction; it counts once that is durable."""
        accepting = self._inbox.accept(tx, queue, body, **arguments)
        return await self._senders.count_within(tx, queue, arguments.get("caller", ""), accepting)

    async def accept_many(self, queue: str, messages: Sequence[Mapping[str, Any]]) -> list[Verdict]:
        """Take messages in, in as few commits as hold them; one verdict for each, in their
        order."""
        admit_queue(queue)
        if not _is_list(messages):
            raise BadInput(f"messages come as a list, not as {type(messages).__name__}")
        begun_ns = self._store.clock.elapsed_ns()
        verdicts: list[Verdict] = []
        for piece in _pieces([_message(self._store, message) for message in messages]):
            verdicts += await self._store.run(partial(self._accept_each, queue, piece, begun_ns))
        return verdicts

    async def _accept_each(
        self,
        queue: str,
        messages: list[dict[str, Any] | OncewardError],
        begun_ns: int,
        tx: Transaction,
    ) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for message in messages:
            if isinstance(message, OncewardError):
                verdicts.append(message)
                continue
            accepting = self._inbox.accept(tx, queue, **message)
            caller = message.get("caller", "")
            try:
                verdicts.append(
                    await self._senders.count_within(tx, queue, caller, accepting, begun_ns)
                )
            except (BadInput, QueueFull) as refused:
                verdicts.append(refused)
        return verdicts

    async def finish(self) -> None:
        """Wait for what is under way."""
        await self._sharing.finish()


def _is_list(messages: Any) -> bool:
    return isinstance(messages, Sequence) and not isinstance(messages, str | bytes | bytearray)


def _message(store: Store, message: Any) -> dict[str, Any] | OncewardError:
    """The arguments of `accept` for a message, or why there are none."""
    if not isinstance(message, Mapping) or "body" not in message:
        return BadInput(f"a message is a mapping with a body, not {str(message)[:100]}")
    try:
        rest = {name: value for name, value in message.items() if name != "body"}
        return {"body": message["body"], **accept_arguments(store, rest)}
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
