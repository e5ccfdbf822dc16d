"""Intake: accepts messages, many in one commit under load."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from onceward import tracing
from onceward.conversion import plain_body
from onceward.errors import BadInput, KeyReused, OncewardError
from onceward.job_options import NO_OPTIONS
from onceward.keys import Key
from onceward.observe.senders import Senders
from onceward.schedule import admit_queue
from onceward.store import Store
from onceward.store.sharing import Call, SharedCommits
from onceward.store.transaction import Transaction
from onceward.work.inbox import PLAIN_WRITES, Inbox, Receipt, accept_writes
from onceward.work.job import SendArguments, send_arguments

Verdict = Receipt | OncewardError


class Intake:
    """Accepts messages for one application on one node, and counts them by sender."""

    def __init__(self, store: Store, inbox: Inbox, senders: Senders) -> None:
        self._store = store
        self._inbox = inbox
        self._senders = senders
        self._sharing = SharedCommits(store, inbox.fetch)
        self._shares_reads = store.engine.shares_reads

    async def accept(self, queue: str, body: Any, arguments: SendArguments) -> Receipt:
        """Accept a message. Raises the errors of `Inbox.accept` and `Store.run`."""
        with tracing.sending(queue) or nullcontext() as span:
            if span is not None and span.trace is not None:
                arguments["trace"] = span.trace
            if type(body) is not dict:
                body = plain_body(body)
            writes = PLAIN_WRITES
            if "merge" in arguments or arguments.get("options", NO_OPTIONS) is not NO_OPTIONS:
                writes = accept_writes(arguments)
            accepting = self._sharing.run(
                lambda tx: self._inbox.accept(tx, queue, body, **arguments),
                writes=writes,
                reads=self._reads(queue, body, arguments) if self._shares_reads else (),
                line=_line(queue, arguments) if "merge" in arguments else None,
            )
            receipt = await self._senders.count(queue, arguments.get("caller", ""), accepting)
            if span is not None:
                span.sent(receipt.id)
        return receipt

    async def accept_within(
        self, tx: Transaction, queue: str, body: Any, arguments: SendArguments
    ) -> Receipt:
        """Accept a message as part of a transaction. It is counted when that is durable."""
        with tracing.sending(queue) or tracing.NO_SPAN as span:
            if span.trace is not None:
                arguments["trace"] = span.trace
            accepting = self._inbox.accept(tx, queue, plain_body(body), **arguments)
            caller = arguments.get("caller", "")
            receipt = await self._senders.count_within(tx, queue, caller, accepting)
            span.sent(receipt.id)
        return receipt

    async def accept_many(self, queue: str, messages: Sequence[Mapping[str, Any]]) -> list[Verdict]:
        """Accept messages in as few commits as possible; returns one verdict each, in order."""
        admit_queue(queue)
        if not _is_list(messages):
            raise BadInput(f"messages must be a list, not {type(messages).__name__}")
        begun_ns = self._store.clock.elapsed_ns()
        asked = [_message(self._store, message) for message in messages]
        with tracing.sending(queue, len(asked)) or tracing.NO_SPAN as span:
            if span.trace is not None:
                for message in asked:
                    if isinstance(message, dict):
                        message["trace"] = span.trace
            calls = [self._call(queue, message, begun_ns) for message in asked]
            # Over a network, messages of any order take a few round trips together.
            together = self._shares_reads and _independent(calls)
            run = self._sharing.run_together if together else self._sharing.run_all
            verdicts = await run(calls)
        for verdict in verdicts:
            if not isinstance(verdict, Receipt | OncewardError):
                raise verdict
        return verdicts

    def _reads(self, queue: str, body: Any, arguments: Mapping[str, Any]) -> Sequence[Key]:
        key, caller = arguments.get("key"), arguments.get("caller", "")
        options = arguments.get("options", NO_OPTIONS)
        merge = arguments.get("merge")
        return self._inbox.read_to_accept(queue, body, key, caller, options, merge)

    def _call(self, queue: str, message: dict[str, Any] | OncewardError, begun_ns: int) -> Call:
        reads: Sequence[Key] = ()
        writes = PLAIN_WRITES
        if isinstance(message, dict):
            writes = accept_writes(message)
            if self._shares_reads:
                reads = self._reads(queue, message["body"], message)
        return Call(partial(self._accept_one, queue, message, begun_ns), writes, reads)

    async def _accept_one(
        self, queue: str, message: dict[str, Any] | OncewardError, begun_ns: int, tx: Transaction
    ) -> Verdict:
        if isinstance(message, OncewardError):
            return message
        accepting = self._inbox.accept(tx, queue, **message)
        caller = message.get("caller", "")
        try:
            return await self._senders.count_within(tx, queue, caller, accepting, begun_ns)
        except KeyReused as refused:
            return refused  # it wrote nothing, and is counted when the commit is durable

    async def finish(self) -> None:
        """Wait for running commits."""
        await self._sharing.finish()


def _independent(calls: Sequence[Call]) -> bool:
    """Whether no message has a key of another, such as the idempotency key or the order key."""
    reads = [read for call in calls for read in call.reads]
    return len(set(reads)) == len(reads)


def _line(queue: str, arguments: SendArguments) -> str:
    """The line of messages for one job, which would conflict if they were accepted at once."""
    return f"merge {queue} {arguments.get('caller', '')} {arguments['merge'].name}"


def _is_list(messages: Any) -> bool:
    return isinstance(messages, Sequence) and not isinstance(messages, str | bytes | bytearray)


def _message(store: Store, message: Any) -> dict[str, Any] | OncewardError:
    """The arguments of `Inbox.accept` for a message, or the error of an invalid one."""
    if not isinstance(message, Mapping) or "body" not in message:
        return BadInput(f"a message must be a mapping with a body, not {str(message)[:100]}")
    try:
        rest = {name: value for name, value in message.items() if name != "body"}
        return {"body": plain_body(message["body"]), **send_arguments(store, rest)}
    except BadInput as refused:
        return refused
