"""HTTP functions for messages: durable before the response, once for each idempotency key."""

import re
from typing import Any

from onceward.api import messages as api
from onceward.api.jobs import ENDED
from onceward.errors import BadInput, OncewardError
from onceward.job_options import MERGE_NAMES, given_options
from onceward.web.api.jobs import shown_result
from onceward.web.calls import Call, binder
from onceward.web.http import Request, Response
from onceward.web.routes import Route
from onceward.work.inbox import Receipt

# Escapes in a quoted string, which the header Idempotency-Key may be.
_ESCAPED = re.compile(r'\\(["\\])')

ROUTES: list[Route] = []
answers = binder(ROUTES)


@answers(api.SEND)
async def send(call: Call, queue: str, asked: api.Wait, message: api.Message) -> Response:
    options = _options(message)
    header = idempotency_key(call.request, message.key)
    options["key"] = _key(call, queue, message, header)
    receipt = await call.app.send(queue, message.body, **options, caller=call.caller.caller)
    shown = _receipt(receipt)
    if asked.wait_ms and receipt.state not in ENDED:
        job = await call.patiently(call.app.wait(receipt.id, asked.wait_ms / 1000))
        if job is not None:
            shown.state, shown.reason = job.state, job.reason
            if job.state == "succeeded":
                shown.result = shown_result(job.state, job.result)
    return Response.of(shown, 200 if receipt.duplicate else 202)


@answers(api.SEND_MANY)
async def send_many(call: Call, queue: str, batch: api.MessageBatch) -> api.MessageVerdicts:
    verdicts: list[Receipt | OncewardError | None] = []
    messages: list[dict[str, Any]] = []
    header = idempotency_key(call.request, None)
    for number, message in enumerate(batch.messages):
        options = _options(message)
        try:
            _admit_key(message.key)
            options["key"] = _key(call, queue, message, header and f"{header}-{number}")
        except BadInput as rejected:
            verdicts.append(rejected)
            continue
        verdicts.append(None)
        messages.append({"body": message.body, **options, "caller": call.caller.caller})
    found = iter(await call.app.send_many(queue, messages))
    return api.MessageVerdicts([_verdict(verdict or next(found)) for verdict in verdicts])


def _key(call: Call, queue: str, message: api.Message, header: str | None) -> str:
    """The key of a message: its own, the one from fields of its body, or that of the request.

    Key fields have precedence over the header, because clients fill the header if no key is given.
    Raises `BadInput`.
    """
    if message.key is not None:
        return message.key
    if header is not None and not call.app.node.queue_settings(queue).key_fields:
        return header
    return call.app.inbox.key_of(queue, message.body)


def idempotency_key(request: Request, key: str | None) -> str | None:
    """The idempotency key from the header or the body. Raises `BadInput`."""
    header = request.header(b"idempotency-key")
    if header is not None:
        if len(header) > 1 and header[0] == header[-1] == '"':
            header = _ESCAPED.sub(r"\1", header[1:-1])
        if key is not None and key != header:
            raise BadInput(
                f"the header Idempotency-Key is {header[:100]!r}, but the member key is "
                f"{key[:100]!r}; send one of them",
                code="bad_key",
            )
        key = header
    _admit_key(key)
    return key


def _admit_key(key: str | None) -> None:
    if key is not None and "\x00" in key:
        raise BadInput(f"the idempotency key {key[:100]!a} contains NUL; remove it", code="bad_key")


def _options(message: api.Message) -> dict[str, Any]:
    options = given_options(message)
    if message.key is not None:
        options["key"] = message.key
    if message.due_ms is not None:
        options["due_ms"] = message.due_ms
    if message.delay_ms is not None:
        options["delay_s"] = message.delay_ms / 1000
    for name in MERGE_NAMES:
        if name.endswith("_s"):
            wait_ms = getattr(message, name.removesuffix("_s") + "_ms")
            options[name] = None if wait_ms is None else wait_ms / 1000
        else:
            options[name] = getattr(message, name)
    return options


def _receipt(receipt: Receipt) -> api.Receipt:
    return api.Receipt(
        receipt.id,
        receipt.key,
        receipt.state,
        receipt.duplicate,
        shown_result(receipt.state, receipt.result),
        receipt.reason,
        receipt.same_body,
    )


def _verdict(verdict: Receipt | OncewardError) -> api.MessageVerdict:
    if isinstance(verdict, Receipt):
        return api.MessageVerdict(accepted=_receipt(verdict))
    status = verdict.kind.status
    return api.MessageVerdict(rejected=api.RejectedMessage(verdict.code, verdict.message, status))
