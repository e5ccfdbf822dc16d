"""Headers that callers put on outward calls."""

from typing import Any

import pytest

from onceward import limits
from onceward.errors import BadInput
from onceward.webhooks.http.headers import admit_headers


def test_plain_headers_are_let_in() -> None:
    admit_headers({})
    admit_headers({"Authorization": "Bearer a b", "x-empty": "", "X-Tab": "a\tb", "Accept": "*/*"})


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "a b", "a:", "a\r\nb", "é", "a\x00"),
        *("Host", "content-length", "Transfer-Encoding", "CONNECTION", "Upgrade", "te", "Expect"),
        *("Keep-Alive", "Trailer", "x" * 257),
        *("webhook-id", "Webhook-Signature", "onceward-timer", "Proxy-Authorization"),
    ],
)
def test_a_header_that_is_none_or_not_the_callers_is_refused(name: str) -> None:
    with pytest.raises(BadInput):
        admit_headers({name: "1"})


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "\x00", "é", " a", "a ", "\t", "\x7f"])
def test_a_value_that_would_not_arrive_as_it_is_is_refused(value: str) -> None:
    with pytest.raises(BadInput, match="printable ASCII"):
        admit_headers({"a": value})


@pytest.mark.parametrize("headers", [None, 5, "a: b", [("a", "b")], {"a"}])
def test_headers_are_names_with_values(headers: Any) -> None:
    with pytest.raises(BadInput, match=f"names to values, not {type(headers).__name__}"):
        admit_headers(headers)


@pytest.mark.parametrize("odd", [None, 5, True, b"a", ("a",)])
def test_names_and_values_are_text(odd: Any) -> None:
    for headers in ({odd: "1"}, {"a": odd}):
        with pytest.raises(BadInput, match="names and values of headers must be text"):
            admit_headers(headers)


def test_the_same_header_in_two_spellings_is_refused() -> None:
    with pytest.raises(BadInput, match="twice"):
        admit_headers({"a": "1", "A": "2"})


def test_headers_have_a_number_and_a_size() -> None:
    many = {f"h{number}": "1" for number in range(limits.OUTWARD_HEADERS_MAX)}
    admit_headers(many)
    with pytest.raises(BadInput, match="at most 50 custom headers"):
        admit_headers({**many, "one-more": "1"})
    admit_headers({"x" * 256: "1"})
    admit_headers({"a": "x" * (limits.OUTWARD_HEADS_BYTES - 1)})
    with pytest.raises(BadInput, match="bytes"):
        admit_headers({"a": "x" * limits.OUTWARD_HEADS_BYTES})
