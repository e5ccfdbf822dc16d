"""OpenTelemetry spans of requests, if installed and enabled."""

from onceward import tracing
from onceward.errors import BadInput, OncewardError
from onceward.extras import missing
from onceward.tracing import Span
from onceward.web.http import Request
from onceward.web.routes import raw_path
from onceward.work.event_links import PREFIX as LINKS


class Telemetry:
    """Continues the traces of callers, with a span for each request if enabled."""

    def __init__(self, *, spans: bool) -> None:
        """Raises `bad_settings` if spans are enabled and OpenTelemetry is not installed."""
        self._spans = spans
        if spans:
            try:
                import opentelemetry.trace  # noqa: F401
            except ModuleNotFoundError as error:
                message = f"telemetry needs {missing(error)}"
                raise OncewardError(message, code="bad_settings") from error

    def span(self, request: Request) -> Span:
        """A span for the handling of a request, or the trace of its caller."""
        parent, trace = _header(request, b"traceparent"), None
        if parent is not None:
            trace = tracing.read(parent, _header(request, b"tracestate"))
        if not self._spans:
            return tracing.passing(trace)
        path = raw_path(request.scope).decode(errors="replace").partition("?")[0]
        if request.route == LINKS:
            path = LINKS  # the rest is a credential
        scheme = request.scope.get("scheme", "http")
        return tracing.serving(request.method, request.route, trace, path=path, scheme=scheme)


def _header(request: Request, name: bytes) -> str | None:
    try:
        return request.header(name)
    except BadInput:
        return None  # malformed trace headers are ignored
