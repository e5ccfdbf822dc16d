"""OpenTelemetry spans around requests, where that is installed and wanted."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onceward.errors import OncewardError
from onceward.web.http import Request


class Telemetry:
    """Makes a span for each request, as part of the caller's trace if it names one."""

    def __init__(self) -> None:
        """Raises `bad_settings` if OpenTelemetry is not installed."""
        try:
            from opentelemetry import propagate, trace
        except ImportError as error:
            raise OncewardError(
                "telemetry needs OpenTelemetry: pip install onceward[telemetry]",
                code="bad_settings",
            ) from error
        self._propagate = propagate
        self._trace = trace
        self._tracer = trace.get_tracer("onceward")

    @contextmanager
    def span(self, request: Request) -> Iterator[Any]:
        carrier = {
            name: value
            for name in ("traceparent", "tracestate")
            if (value := request.header(name.encode())) is not None
        }
        with self._tracer.start_as_current_span(
            f"{request.method} {request.route}",
            context=self._propagate.extract(carrier),
            kind=self._trace.SpanKind.SERVER,
            attributes={"http.request.method": request.method, "http.route": request.route},
        ) as span:
            yield span
