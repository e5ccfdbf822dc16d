"""OpenTelemetry spans around requests, as part of the caller's trace."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanKind, Status, StatusCode, Tracer

from onceward.errors import OncewardError
from onceward.web.telemetry import Telemetry
from tests.schedule.cluster import virtual
from tests.web.asgi import serving
from tests.work.apps import Apps

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


class NotedSpan(NonRecordingSpan):
    """A span that keeps what it is told."""

    def __init__(self, name: str, parent: Any, options: dict[str, Any]) -> None:
        super().__init__(parent)
        self.name = name
        self.kind = options["kind"]
        self.attributes = dict(options["attributes"])
        self.status = StatusCode.UNSET
        self.ended = False

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_status(self, status: Any, description: str | None = None) -> None:
        assert isinstance(status, Status)
        self.status = status.status_code


class NotingTracer(Tracer):
    """Keeps its spans."""

    def __init__(self) -> None:
        self.spans: list[NotedSpan] = []

    def start_span(self, name: str, context: Any = None, **options: Any) -> NotedSpan:
        parent = trace.get_current_span(context).get_span_context()
        span = NotedSpan(name, parent, options)
        self.spans.append(span)
        return span

    @contextmanager
    def start_as_current_span(
        self, name: str, context: Any = None, **options: Any
    ) -> Iterator[NotedSpan]:
        span = self.start_span(name, context, **options)
        with trace.use_span(span, end_on_exit=False):
            yield span
        span.ended = True


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[NotedSpan]:
    tracer = NotingTracer()
    monkeypatch.setattr(trace, "get_tracer", lambda name: tracer)
    return tracer.spans


@virtual
async def test_each_request_has_a_span(spans: list[NotedSpan]) -> None:
    async with serving(telemetry=True) as caller:
        headers = [("traceparent", PARENT)]
        message = {"body": 1, "key": "k"}
        assert (await caller("POST", "/v1/inbox/q", message, headers=headers)).status == 202
        [span] = spans
        assert (span.name, span.kind) == ("POST /v1/inbox/{queue}", SpanKind.SERVER)
        assert f"{span.get_span_context().trace_id:032x}" == TRACE
        assert span.attributes == {
            "http.request.method": "POST",
            "http.route": "/v1/inbox/{queue}",
            "http.response.status_code": 202,
        }
        assert (span.status, span.ended) == (StatusCode.UNSET, True)


@virtual
async def test_only_what_the_server_failed_at_is_an_error(spans: list[NotedSpan]) -> None:
    apps = Apps(shared=False)
    async with serving(apps.make(), telemetry=True) as caller:
        await caller("GET", "/v1/jobs/x")
        apps.engines[0].cut_off = True
        await caller("GET", "/readyz")
        apps.engines[0].cut_off = False
        told = [(span.attributes["http.response.status_code"], span.status) for span in spans]
        assert told == [(404, StatusCode.UNSET), (503, StatusCode.ERROR)]


@pytest.mark.parametrize("header", [b"nonsense", b"\xff", b""])
@virtual
async def test_a_trace_that_is_not_understood_is_no_reason_to_refuse(
    spans: list[NotedSpan], header: bytes
) -> None:
    async with serving(telemetry=True) as caller:
        assert (await caller("GET", "/healthz", headers=[("traceparent", header)])).status == 200
        assert f"{spans[0].get_span_context().trace_id:032x}" != TRACE


@virtual
async def test_without_an_sdk_it_costs_nothing_and_breaks_nothing() -> None:
    async with serving(telemetry=True) as caller:
        assert (await caller("GET", "/healthz")).status == 200


def test_if_it_is_not_installed_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(OncewardError) as refused:
        Telemetry()
    assert refused.value.code == "bad_settings"
    assert "onceward[telemetry]" in refused.value.message
