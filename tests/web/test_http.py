"""Requests and answers, as ASGI has them."""

import pytest

from onceward.errors import TABLE, BadInput, OncewardError, Unavailable
from onceward.web.http import Request, Response, problem, whole


def request(
    body: bytes = b"", headers: list[tuple[bytes, bytes]] | None = None, query: bytes = b""
) -> Request:
    scope = {"method": "POST", "headers": headers or [], "query_string": query}
    return Request(scope, body)


async def refusal(asked: Request, most_bytes: int = 10) -> str:
    with pytest.raises(BadInput) as refused:
        await asked.body(most_bytes)
    return refused.value.code


async def test_a_body_over_the_limit_is_refused() -> None:
    assert await refusal(request(headers=[(b"content-length", b"11")])) == "body_too_large"
    assert await refusal(request(headers=[(b"content-length", b"9" * 5_000)])) == "body_too_large"
    assert await refusal(request(b"12345678901")) == "body_too_large"
    assert await request(b"1234567890").body(10) == b"1234567890"


@pytest.mark.parametrize("kind", [b"text/plain", b"", b"application/jsonp", b"multipart/form-data"])
async def test_only_json_is_taken(kind: bytes) -> None:
    assert await refusal(request(b"{}", headers=[(b"content-type", kind)])) == "not_this_type"


async def test_a_compressed_body_is_refused() -> None:
    for coding in (b"gzip", b"identity, br"):
        asked = request(b"{}", headers=[(b"content-encoding", coding)])
        assert await refusal(asked) == "not_this_type"
    assert await request(b"{}", headers=[(b"content-encoding", b"identity")]).body() == b"{}"


@pytest.mark.parametrize("kind", [b"application/json", b"Application/JSON ; charset=utf-8"])
async def test_json_may_be_called_so_in_different_ways(kind: bytes) -> None:
    assert await request(b"{}", headers=[(b"content-type", kind)]).body() == b"{}"


async def test_a_length_and_a_transfer_encoding_contradict_each_other() -> None:
    headers = [(b"content-length", b"2"), (b"transfer-encoding", b"chunked")]
    assert await refusal(request(b"{}", headers=headers)) == "bad_header"


async def test_a_length_that_is_no_number_is_left_to_the_server() -> None:
    assert await request(b"{}", headers=[(b"content-length", "²".encode())]).body() == b"{}"


def test_a_header_that_is_there_twice_is_refused_if_it_matters() -> None:
    asked = request(headers=[(b"a", b"1"), (b"b", b"2"), (b"a", b"1")])
    assert asked.header(b"b") == "2"
    assert asked.header(b"c") is None
    with pytest.raises(BadInput) as refused:
        asked.header(b"a")
    assert refused.value.code == "bad_header"


def test_a_header_is_text() -> None:
    assert request(headers=[(b"a", "grün".encode())]).header(b"a") == "grün"
    with pytest.raises(BadInput) as refused:
        request(headers=[(b"a", b"\xff")]).header(b"a")
    assert refused.value.code == "not_text"


@pytest.mark.parametrize(
    "query", [b"other=1", b"n=1&n=1", b"n=%ff", b"\xff=1", b"&".join([b"n=1"] * 200), b"n=1&o="]
)
def test_a_query_that_is_not_understood_is_refused(query: bytes) -> None:
    with pytest.raises(BadInput) as refused:
        request(query=query).query(["n"])
    assert refused.value.code == "bad_parameter"


def test_a_query_gives_its_parameters() -> None:
    assert request().query(["n"]) == {}
    assert request(query=b"n=%C3%BC+x&m=").query(["n", "m"]) == {"n": "ü x", "m": ""}
    assert request(query=b"n=7").number("n", 9) == 7
    assert request().number("n", 9, 3) == 3


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "0x1", "10", "٣", "²", "1 ", "0" * 17])
def test_a_parameter_that_is_no_number_within_bounds_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        whole("n", text, 1, 9)
    assert refused.value.code == "bad_parameter"


def test_an_answer_is_never_kept_by_caches() -> None:
    response = Response.of({"a": 1}, 202)
    assert response.status == 202
    assert dict(response.headers) == {
        b"content-length": b"7",
        b"content-type": b"application/json",
        b"cache-control": b"no-store",
        b"x-content-type-options": b"nosniff",
    }
    assert response.body == b'{"a":1}'
    assert b"content-type" not in dict(Response(204).headers)


def test_a_problem_says_what_happened_and_whether_to_try_again() -> None:
    told = problem(OncewardError("held", code="lock_held", names=["a"], status=1, other={1}))
    assert told.status == 423
    assert dict(told.headers)[b"content-type"] == b"application/problem+json"
    assert told.body == (
        b'{"type":"urn:onceward:problem:lock_held",'
        b'"title":"The lock is held, and was not released in time","status":423,"detail":"held",'
        b'"code":"lock_held","retry":true,"names":["a"],"other":[1]}'
    )


def test_a_problem_that_passes_says_when_to_try_again() -> None:
    assert (b"retry-after", b"1") in problem(Unavailable("away")).headers
    assert (b"retry-after", b"1") not in problem(BadInput("wrong")).headers


def test_a_problem_may_quote_what_is_no_text() -> None:
    assert rb'"detail":"not \\ud800"' in problem(BadInput("not \ud800")).body


@pytest.mark.parametrize("code", TABLE)
def test_every_error_can_be_a_problem(code: str) -> None:
    told = problem(OncewardError("…", code=code))
    assert 400 <= told.status < 600
