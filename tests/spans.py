"""Spans of a test, recorded by the SDK of OpenTelemetry."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT_ID = "b7ad6b7169203331"
PARENT = f"00-{TRACE_ID}-{PARENT_ID}-01"


class Spans:
    """The ended spans of a provider, in the order of their ends."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = self.provider.get_tracer("test")

    @property
    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        found = self.named(name)
        assert len(found) == 1, [span.name for span in self.all]
        return found[0]


def ids(span: ReadableSpan) -> tuple[str, str]:
    """The ids of a trace and of a span."""
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def parent_of(span: ReadableSpan) -> tuple[str, str] | None:
    return (
        None
        if span.parent is None
        else (
            f"{span.parent.trace_id:032x}",
            f"{span.parent.span_id:016x}",
        )
    )


def links_of(span: ReadableSpan) -> list[tuple[str, str]]:
    return [
        (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") for link in span.links
    ]


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Record all spans of the process."""
    found = Spans()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: found.provider)
    yield found
    found.provider.shutdown()
