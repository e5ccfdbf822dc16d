"""Distributed tracing: W3C trace contexts of jobs, and OpenTelemetry spans.

A trace context travels with the record of a job from its sender to its handler. That needs no
package. Spans are created if the process has set an OpenTelemetry tracer provider. A process that
has not imported OpenTelemetry has none, so this module never imports it first.
"""

import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import msgspec

from onceward import limits
from onceward.contexts import restore
from onceward.errors import OncewardError
from onceward.reasons import reason_of, reason_text
from onceward.redaction import redact

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import SpanContext, Tracer, TracerProvider

_SYSTEM = "onceward"
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "QUERY"}
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(rf"[ -~]{{1,{limits.TRACESTATE_CHARS_MAX}}}")


class Trace(msgspec.Struct, frozen=True, array_like=True):
    """A trace context: the headers `traceparent` and `tracestate` of W3C Trace Context."""

    parent: str
    state: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of an outgoing request."""
        headers = {"traceparent": self.parent}
        if self.state:
            headers["tracestate"] = self.state
        return headers


Traced = tuple[str, int, Trace | None]
"""A job: its id, the number of its attempt, and the trace context of its sender."""

_given: ContextVar[Trace | None] = ContextVar("onceward_trace", default=None)
"""The trace context of a request or a job, for processes without spans."""


def read(parent: str | None, state: str | None) -> Trace | None:
    """The trace context of two headers; None if it is missing or invalid."""
    if parent is None or (found := _PARENT.match(parent)) is None:
        return None
    rest = parent[found.end() :]
    if rest and (parent.startswith("00") or not rest.startswith("-")):
        return None
    valid = state is not None and _STATE.fullmatch(state) is not None
    return Trace(f"00{found[0][2:]}", state if valid and state is not None else "")


def current() -> Trace | None:
    """The trace context of the caller."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is not None:
        context: SpanContext = api.get_current_span().get_span_context()
        if context.is_valid:
            return _trace(context)
    return _given.get()


class Span:
    """A span as a context manager; nothing is recorded without OpenTelemetry."""

    __slots__ = ("_span", "_token", "trace")

    def __init__(self, span: "OtelSpan | None", trace: Trace | None) -> None:
        self.trace = trace
        """The trace context to pass on."""
        self._span = span
        self._token: Any = None

    def answered(self, status: int, *, failed: bool) -> None:
        """Set the status of an HTTP response."""
        if self._span is not None:
            self._span.set_attribute("http.response.status_code", status)
            if failed:
                self.failed(str(status))

    def sent(self, id_: str) -> None:
        """Set the id of the message that was sent."""
        if self._span is not None:
            self._span.set_attribute("messaging.message.id", id_)

    def failed(self, error: BaseException | str) -> None:
        """Mark the operation as failed, with an exception or a short description of its kind."""
        if self._span is None:
            return
        from opentelemetry.trace import Status, StatusCode

        if isinstance(error, str):
            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR))
            return
        kind = _kind(error)
        reason = redact(reason_text(reason_of(error)))
        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR, reason))
        # Redacted after the cut, which bounds the effort. A line may be cut within a secret.
        text = "".join(traceback.format_exception(error))[-limits.STACKTRACE_CHARS_MAX :]
        text = text.partition("\n")[2] if len(text) == limits.STACKTRACE_CHARS_MAX else text
        told = {
            "exception.type": kind,
            "exception.message": reason,
            "exception.stacktrace": redact(text),
        }
        self._span.add_event("exception", told)

    def __enter__(self) -> Self:
        if self._span is not None:
            from opentelemetry import context
            from opentelemetry.trace import set_span_in_context

            self._token = context.attach(set_span_in_context(self._span))
        elif self.trace is not None:
            self._token = _given.set(self.trace)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._span is not None:
            from opentelemetry import context

            if isinstance(error, Exception):
                self.failed(error)
            context.detach(self._token)
            self._span.end()
        elif self.trace is not None:
            restore(_given, self._token)


NO_SPAN = Span(None, None)


def passing(trace: Trace | None) -> Span:
    """A trace context to continue, without a span."""
    return NO_SPAN if trace is None else Span(None, trace)


def serving(method: str, route: str, trace: Trace | None, *, path: str, scheme: str) -> Span:
    """The span of a request to this server. Its query may be secret and is left out."""
    tracer = _tracer()
    if tracer is None:
        return passing(trace)
    known = method if method in _METHODS else "_OTHER"
    attributes: dict[str, str | int] = {
        "http.request.method": known,
        "url.path": path,
        "url.scheme": scheme,
    }
    if known != method:
        attributes["http.request.method_original"] = method[:100]
    if route:
        attributes["http.route"] = route
    name = " ".join(filter(None, (known if known == method else "HTTP", route)))
    return _start(tracer, name, "SERVER", attributes, _context(trace))


def sending(queue: str, count: int | None = None) -> Span | None:
    """The span of sending a message to a queue, or a number of messages at once. None if there is
    nothing to record or to pass on."""
    if "opentelemetry.trace" not in sys.modules:
        trace = _given.get()
        return None if trace is None else Span(None, trace)
    tracer = _tracer()
    if tracer is None:
        return passing(current())
    attributes = _messaging("send", queue)
    if count is not None:
        attributes["messaging.batch.message_count"] = count
    return _start(tracer, f"send {queue}", "PRODUCER", attributes, _context(current()))


def processing(queue: str, jobs: Sequence[Traced], *, batch: bool = False) -> Span | None:
    """The span of a handler. It has a link to the sender of each job. A single job continues the
    trace of its sender. None if there is nothing to record or to pass on."""
    id_, attempt, trace = jobs[0]
    if trace is None and "opentelemetry.trace" not in sys.modules:
        return None
    tracer = _tracer()
    if tracer is None:
        return passing(None if batch else trace)
    attributes = _messaging("process", queue)
    if batch:
        attributes["messaging.batch.message_count"] = len(jobs)
    else:
        attributes["messaging.message.id"] = id_
        attributes["onceward.job.attempt"] = attempt
    links = [trace for _, _, trace in jobs if trace is not None]
    context = _context(None if batch else trace, root=True)
    return _start(tracer, f"process {queue}", "CONSUMER", attributes, context, links)


def step(name: str, job: str, attempt: int) -> Span:
    """The span of a step of a job."""
    tracer = _tracer()
    if tracer is None:
        return NO_SPAN
    attributes: dict[str, str | int] = {
        "onceward.step.name": name,
        "onceward.job.id": job,
        "onceward.job.attempt": attempt,
    }
    return _start(tracer, f"step {name}", "INTERNAL", attributes, None)


def calling(method: str, url: str, attempt: int) -> Span:
    """The span of a request to another server. The query of the URL may be secret and is left
    out."""
    tracer = _tracer()
    if tracer is None:
        return passing(current())
    parts = urlsplit(url)
    attributes: dict[str, str | int] = {
        "http.request.method": method,
        "url.full": f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}",
        "server.address": parts.hostname or "",
        "server.port": parts.port or (443 if parts.scheme == "https" else 80),
    }
    if attempt > 1:
        attributes["http.request.resend_count"] = attempt - 1
    return _start(tracer, method, "CLIENT", attributes, _context(current()))


def _messaging(operation: str, queue: str) -> dict[str, str | int]:
    return {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
    }


def _start(
    tracer: "Tracer",
    name: str,
    kind: str,
    attributes: Mapping[str, str | int],
    context: "Context | None",
    links: Sequence[Trace] = (),
) -> Span:
    from opentelemetry.trace import Link, SpanKind

    found: list[Link] = [Link(_span_context(trace)) for trace in links]
    span = tracer.start_span(
        name, context=context, kind=SpanKind[kind], attributes=attributes, links=found
    )
    return Span(span, _trace(span.get_span_context()))


def _context(trace: Trace | None, *, root: bool = False) -> "Context | None":
    """The context in which a span is started: that of a trace, or None for the current one."""
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, get_current_span, set_span_in_context

    if not root and get_current_span().get_span_context().is_valid:
        return None
    if trace is None:
        return Context() if root else None
    return set_span_in_context(NonRecordingSpan(_span_context(trace)), Context())


_known: "tuple[TracerProvider, Tracer] | None" = None


def _tracer() -> "Tracer | None":
    """The tracer of the process, if it has set a provider."""
    global _known
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    provider: TracerProvider = api.get_tracer_provider()
    if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    if _known is None or _known[0] is not provider:
        _known = provider, provider.get_tracer("onceward")
    return _known[1]


def _span_context(trace: Trace) -> "SpanContext":
    from opentelemetry.trace import SpanContext, TraceFlags, TraceState

    _, trace_id, span_id, flags = trace.parent.split("-")
    return SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16)),
        trace_state=TraceState.from_header([trace.state]),
    )


def _trace(context: "SpanContext") -> Trace:
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
    return Trace(parent, context.trace_state.to_header()[: limits.TRACESTATE_CHARS_MAX])


def _kind(error: BaseException) -> str:
    """The kind of an error: its code, or the name of its class."""
    if isinstance(error, OncewardError):
        return error.code
    type_ = type(error)
    known = type_.__module__ == "builtins"
    return type_.__qualname__ if known else f"{type_.__module__}.{type_.__qualname__}"
