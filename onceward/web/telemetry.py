"""OpenTelemetry spans of requests, if installed and enabled."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onceward.errors import BadInput, OncewardError
from onceward.extras import missing
from onceward.web.http import Request, Response


class Telemetry:
    """Creates a span for each request, as part of the caller's trace if the request has one."""

    def __init__(self) -> None:
        """Raises `bad_settings` if OpenTelemetry is not installed."""
        try:
            from opentelemetry import propagate, trace
        except ModuleNotFoundError as error:
            raise OncewardError(f"telemetry needs {missing(error)}", code="bad_settings") from error
        self._propagate = propagate
        self._trace = trace
        self._tracer = trace.get_tracer("onceward")

    @contextmanager
    def span(self, request: Request) -> Iterator["Span"]:
        """A span for the handling of a request."""
        carrier = {
            name: value
            for name in ("traceparent", "tracestate")
            if (value := _header(request, name)) is not None
        }
        with self._tracer.start_as_current_span(
            f"{request.method} {request.route}",
            context=self._propagate.extract(carrier),
            kind=self._trace.SpanKind.SERVER,
            attributes={"http.request.method": request.method, "http.route": request.route},
        ) as span:
            yield Span(span, self._trace.Status(self._trace.StatusCode.ERROR))


class Span:
    """Attributes of a request after its response."""

    def __init__(self, span: Any, failed: Any) -> None:
        self._span = span
        self._failed = failed

    def answered(self, response: Response) -> None:
        """Record the status of the response."""
        self._span.set_attribute("http.response.status_code", response.status)
        if response.status >= 500:
            self._span.set_status(self._failed)


def _header(request: Request, name: str) -> str | None:
    try:
        return request.header(name.encode())
    except BadInput:
        return None  # malformed trace headers are ignored
