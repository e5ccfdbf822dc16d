"""Messages in: once for each key, durable before the answer."""

import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onceward import limits
from onceward.errors import TABLE, BadInput, OncewardError
from onceward.web.bodies import parse
from onceward.web.http import Request, Response
from onceward.web.internal_queues import insist_on_entry
from onceward.web.routes import Route
from onceward.work.inbox import Receipt
from onceward.work.results import ENDED

if TYPE_CHECKING:
    from onceward.web.server import Server

# In a quoted string, as the header Idempotency-Key may be.
_ESCAPED = re.compile(r'\\(["\\])')

Milliseconds = Annotated[int, Meta(ge=0, le=limits.KEY_NUMBER_MAX)]


class Message(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A message."""

    body: Any
    key: str | None = None
    """What is the same message; may come as the header Idempotency-Key instead, or be made from
    fields of the body, if the queue's settings say so."""
    delay_ms: Milliseconds | None = None
    due_ms: Milliseconds | None = None
    order_key: str | None = None
    limit_key: str | None = None
    priority: Annotated[int, Meta(ge=0, le=limits.PRIORITY_MAX)] | None = None
    attempts_max: Annotated[int, Meta(ge=0)] | None = None


class Batch(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Messages, each accepted or refused for itself."""

    messages: Annotated[list[Message], Meta(max_length=limits.BATCH_MESSAGES_MAX)]


class Accepted(msgspec.Struct, omit_defaults=True):
    """The receipt: the same for the first one and for all that repeat it."""

    id: str
    key: str
    state: str
    duplicate: bool
    result: Any = UNSET
    """What the handler returned, once it is done."""
    reason: str | UnsetType = UNSET
    """Why the last attempt failed, if one did."""
    same_body: bool = True


class Refused(msgspec.Struct):
    """A message of a batch that was not accepted."""

    code: str
    detail: str
    status: int


class Verdict(msgspec.Struct, omit_defaults=True):
    """Of a message of a batch: it was either accepted or refused."""

    accepted: Accepted | None = None
    refused: Refused | None = None


class Verdicts(msgspec.Struct):
    """One for each message, in their order."""

    results: list[Verdict]


async def accept(server: "Server", request: Request) -> Response:
    queue = request.parameters["queue"]
    caller = server.caller(request)
    insist_on_entry(server, caller, "send", queue)
    wait_ms = request.number("wait_ms", limits.WAIT_MS_MAX)
    message = parse(await request.body(), Message)
    message.key = idempotency_key(request, message.key)
    receipt = await server.app.accept(
        queue, message.body, **_options(message), caller=caller.caller
    )
    accepted = _accepted(receipt)
    if wait_ms and receipt.state not in ENDED:
        job = await server.patiently(request, server.app.wait(receipt.id, wait_ms / 1000))
        if job is not None:
            accepted.state, accepted.reason = job.state, job.reason or UNSET
            if job.state == "done":
                accepted.result = job.result
    return Response.of(accepted, 200 if receipt.duplicate else 202)


async def accept_batch(server: "Server", request: Request) -> Response:
    queue = request.parameters["queue"]
    caller = server.caller(request)
    insist_on_entry(server, caller, "send", queue)
    batch = parse(await request.body(limits.MESSAGES_BYTES_MAX), Batch)
    verdicts: list[Receipt | OncewardError | None] = []
    messages: list[dict[str, Any]] = []
    for message in batch.messages:
        try:
            _admit_key(message.key)
        except BadInput as refused:
            verdicts.append(refused)
            continue
        verdicts.append(None)
        messages.append({"body": message.body, **_options(message), "caller": caller.caller})
    found = iter(await server.app.accept_many(queue, messages))
    return Response.of(Verdicts([_verdict(verdict or next(found)) for verdict in verdicts]))


def idempotency_key(request: Request, key: str | None) -> str | None:
    """What is the same request, from the header or the body. Raises `BadInput`."""
    header = request.header(b"idempotency-key")
    if header is not None:
        if len(header) > 1 and header[0] == header[-1] == '"':
            header = _ESCAPED.sub(r"\1", header[1:-1])
        if key is not None and key != header:
            raise BadInput("the header Idempotency-Key and the member key differ", code="bad_key")
        key = header
    _admit_key(key)
    return key


def _admit_key(key: str | None) -> None:
    if key is not None and "\x00" in key:
        raise BadInput("a dedupe key has no NUL in it", code="bad_key")


def _options(message: Message) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name in ("key", "due_ms", "order_key", "limit_key", "priority", "attempts_max"):
        value = getattr(message, name)
        if value is not None:
            options[name] = value
    if message.delay_ms is not None:
        options["delay_s"] = message.delay_ms / 1000
    return options


def _accepted(receipt: Receipt) -> Accepted:
    accepted = Accepted(receipt.id, receipt.key, receipt.state, receipt.duplicate)
    if receipt.state == "done":
        accepted.result = receipt.result
    if receipt.reason:
        accepted.reason = receipt.reason
    accepted.same_body = receipt.same_body
    return accepted


def _verdict(verdict: Receipt | OncewardError) -> Verdict:
    if isinstance(verdict, Receipt):
        return Verdict(accepted=_accepted(verdict))
    refused = Refused(verdict.code, verdict.message, TABLE[verdict.code].status)
    return Verdict(refused=refused)


ROUTES = [
    Route(
        "POST",
        "/v1/inbox/{queue}",
        accept,
        "Accept a message, once for its key",
        takes=Message,
        gives=Accepted,
        statuses=(202, 200),
        problems=("bad_name", "bad_key", "missing_key", "key_reused", "value_too_large"),
        query=("wait_ms",),
        headers=("Idempotency-Key",),
    ),
    Route(
        "POST",
        "/v1/inbox/{queue}/batch",
        accept_batch,
        "Accept many messages, with a verdict for each",
        takes=Batch,
        gives=Verdicts,
        problems=("bad_name", "bad_key"),
    ),
]
