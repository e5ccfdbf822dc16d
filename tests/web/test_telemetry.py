"""OpenTelemetry spans around requests, as part of the caller's trace."""

import sys
from collections.abc import Iterator

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from onceward.errors import OncewardError
from onceward.web.telemetry import Telemetry
from tests.schedule.cluster import virtual
from tests.spans import PARENT, PARENT_ID, TRACE_ID, Spans, ids, parent_of, recorded
from tests.web.asgi import serving
from tests.work.apps import Apps


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    with recorded(monkeypatch) as found:
        yield found


@virtual
async def test_each_request_has_a_span(spans: Spans) -> None:
    async with serving(telemetry=True) as caller:
        headers = [("traceparent", PARENT), ("tracestate", "vendor=1")]
        message = {"body": 1, "key": "k"}
        answer = await caller("POST", "/v1/inbox/q?wait_ms=0", message, headers=headers)
        assert answer.status == 202
    span = spans.one("POST /v1/inbox/{queue}")
    assert (span.kind, span.status.status_code) == (SpanKind.SERVER, StatusCode.UNSET)
    assert parent_of(span) == (TRACE_ID, PARENT_ID)
    assert span.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/inbox/{queue}",
        "http.response.status_code": 202,
        "url.path": "/v1/inbox/q",
        "url.scheme": "http",
    }
    context = span.get_span_context()
    assert context is not None
    assert context.trace_state.to_header() == "vendor=1"
    assert parent_of(spans.one("send q")) == ids(span)


@virtual
async def test_only_what_the_server_failed_at_is_an_error(spans: Spans) -> None:
    apps = Apps(shared=False)
    async with serving(apps.make(), telemetry=True) as caller:
        await caller("GET", "/v1/jobs/x")
        apps.engines[0].cut_off = True
        await caller("GET", "/readyz")
        apps.engines[0].cut_off = False
    found = [spans.one(name) for name in ("GET /v1/jobs/{id}", "GET /readyz")]
    told = [
        (
            (span.attributes or {})["http.response.status_code"],
            span.status.status_code,
            (span.attributes or {}).get("error.type"),
        )
        for span in found
    ]
    assert told == [(404, StatusCode.UNSET, None), (503, StatusCode.ERROR, "503")]


@virtual
async def test_the_token_of_an_event_link_is_in_no_span(spans: Spans) -> None:
    async with serving(telemetry=True) as caller:
        await caller("GET", "/event-links/abc.def")
    [span] = spans.all
    assert (span.attributes or {})["url.path"] == "/event-links"
    assert "abc" not in str((span.name, span.attributes))


@virtual
async def test_unknown_routes_and_methods_have_spans_with_few_names(spans: Spans) -> None:
    async with serving(telemetry=True) as caller:
        await caller("GET", "/nothing/here")
        await caller("PROPFIND", "/v1/jobs/a")
    known, other = spans.all
    assert (known.name, (known.attributes or {})["url.path"]) == ("GET", "/nothing/here")
    assert "http.route" not in (known.attributes or {})
    assert other.name == "HTTP"
    assert (other.attributes or {})["http.request.method"] == "_OTHER"
    assert (other.attributes or {})["http.request.method_original"] == "PROPFIND"


@pytest.mark.parametrize("header", [b"nonsense", b"\xff", b"", PARENT.replace("b7", "B7").encode()])
@virtual
async def test_a_trace_that_is_not_understood_is_no_reason_to_refuse(
    spans: Spans, header: bytes
) -> None:
    async with serving(telemetry=True) as caller:
        assert (await caller("GET", "/healthz", headers=[("traceparent", header)])).status == 200
    span = spans.one("GET /healthz")
    assert parent_of(span) is None
    assert ids(span)[0] != TRACE_ID


@virtual
async def test_without_an_sdk_it_costs_nothing_and_breaks_nothing() -> None:
    async with serving(telemetry=True) as caller:
        assert (await caller("GET", "/healthz")).status == 200


def test_if_it_is_not_installed_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    with pytest.raises(OncewardError) as refused:
        Telemetry(spans=True)
    assert refused.value.code == "bad_settings"
    assert "onceward[otel]" in refused.value.message
    Telemetry(spans=False)
