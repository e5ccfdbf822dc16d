"""Requests and responses, independent of their source: a socket (`protocol`) or ASGI (`asgi`)."""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping
from functools import lru_cache
from math import ceil
from typing import Any, TypeVar, overload
from urllib.parse import parse_qsl

import msgspec

from onceward import limits
from onceward.conversion import model_converter
from onceward.errors import BadInput, OncewardError
from onceward.json_values import plain_model
from onceward.strict_json import convert, parse
from onceward.web.forms import FORM, Form, pairs_of

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON = b"application/json"
PROBLEM = b"application/problem+json"

CONNECTION = "onceward.connection"
"""The key of the connection in the scope of a request; it has a method `authenticate`."""

_encode = msgspec.json.Encoder(enc_hook=plain_model).encode
_DIGITS_MAX = 16


async def _never() -> None:
    """Wait until cancelled: the transport does not report disconnects."""
    await asyncio.Event().wait()


class Request:
    """One complete request."""

    __slots__ = ("_headers", "gone", "method", "parameters", "route", "scope", "whole")

    def __init__(
        self,
        scope: Scope,
        body: bytes = b"",
        gone: Callable[[], Coroutine[Any, Any, None]] = _never,
        headers: dict[bytes, bytes] | None = None,
    ) -> None:
        """`gone` returns when the caller has disconnected. `headers` are those of the scope by
        name, if already known."""
        self.scope = scope
        self.method: str = scope["method"]
        self.parameters: dict[str, str] = {}
        """The path parameters, by name."""
        self.route = ""
        """The pattern of its path, once found."""
        self.gone = gone
        self.whole = body
        """The unchecked body; `body` checks it."""
        self._headers = headers

    def header(self, name: bytes) -> str | None:
        """Return a header by its name in lower case. Raises `BadInput` if it is repeated, since a
        proxy may have read the other one, or is not text."""
        headers = self.scope["headers"]
        if self._headers is None:
            self._headers = dict(headers)
        value = self._headers.get(name)
        if value is None:
            return None
        if len(self._headers) < len(headers) and [n for n, _ in headers].count(name) > 1:
            raise BadInput(
                f"the header {name.decode()} is repeated; send it once", code="bad_header"
            )
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise BadInput(
                f"the header {name.decode()} is not UTF-8: {error}; encode it as UTF-8",
                code="not_text",
            ) from error

    def query(self, known: Iterable[str]) -> dict[str, str]:
        """Return the query parameters. Raises `BadInput` for unknown or repeated ones."""
        raw: bytes = self.scope["query_string"]
        if not raw:
            return {}
        try:
            pairs = parse_qsl(
                raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100
            )
        except (UnicodeDecodeError, ValueError) as error:
            raise BadInput(
                f"the query is not valid: {error}; percent-encode its values as UTF-8",
                code="bad_parameter",
            ) from error
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise BadInput(
                f"the parameter {twice[:100]!a} is repeated; give it once", code="bad_parameter"
            )
        unknown = sorted(found.keys() - set(known))
        if unknown:
            raise BadInput(
                f"unknown parameter {unknown[0][:100]!a}; use {', '.join(sorted(known)) or 'none'}",
                code="bad_parameter",
            )
        return found

    def number(self, name: str, most: int, default: int = 0) -> int:
        """Return the only query parameter, a number from 0 to `most`. Raises `BadInput`."""
        text = self.query([name]).get(name)
        if text is None:
            return default
        return whole(name, text, 0, most)

    async def body(
        self, most_bytes: int = limits.REQUEST_BYTES_MAX, kind: str = "application/json"
    ) -> bytes:
        """Return the complete body. Raises `BadInput` if it is too large or has a content type
        other than `kind`."""
        told = self.header(b"content-type")
        if told is not None and told.partition(";")[0].strip().lower() != kind:
            raise BadInput(f"the body must be {kind}, not {told[:100]!a}", code="not_this_type")
        coding = self.header(b"content-encoding")
        if coding is not None and coding.strip().lower() != "identity":
            raise BadInput(
                f"compressed bodies ({coding[:100]!a}) are not supported; leave out the header "
                "Content-Encoding",
                code="not_this_type",
            )
        length = self.header(b"content-length")
        if length is not None:
            if self.header(b"transfer-encoding") is not None:
                # Proxies may disagree about the end of the body (request smuggling).
                raise BadInput(
                    "Content-Length and Transfer-Encoding contradict each other; send one of them",
                    code="bad_header",
                )
            if len(length) > _DIGITS_MAX or (length.isdecimal() and int(length) > most_bytes):
                raise body_too_large(most_bytes)
        if len(self.whole) > most_bytes:
            raise body_too_large(most_bytes)
        return self.whole

    @overload
    async def json(self, *, most_bytes: int = ..., kind: str = ...) -> Any: ...
    @overload
    async def json(self, type: type[T], *, most_bytes: int = ..., kind: str = ...) -> T: ...
    async def json(
        self,
        type: Any = Any,
        *,
        most_bytes: int = limits.REQUEST_BYTES_MAX,
        kind: str = "application/json",
    ) -> Any:
        """Return the JSON value in the body, converted to a type: a dataclass, a TypedDict, a
        msgspec struct, a Pydantic model or a plain type. Raises `BadInput` as `body`, and for text
        that is not JSON or does not match the type."""
        text = await self.body(most_bytes, kind)
        value = parse(text, Any)
        if (model := model_converter(type)) is not None:
            return model.read(text, "body")
        return value if type is Any else convert(value, type)

    async def form(self, *, most_bytes: int = limits.REQUEST_BYTES_MAX) -> Form:
        """Return the fields of a form (application/x-www-form-urlencoded). Raises `BadInput` as
        `body`, and for text that is not UTF-8."""
        return Form(pairs_of(await self.body(most_bytes, FORM)))


class Response:
    """A response: a status and usually JSON."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        kind: bytes = JSON,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        self.status = status
        self.body = body
        # Responses are for one caller and must not be cached.
        self.headers = [
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            *headers,
        ]
        if body:
            self.headers.append((b"content-type", kind))

    @classmethod
    def of(cls, value: Any, status: int = 200) -> "Response":
        """A response with a value as JSON."""
        return cls(status, _encode(value))

    @classmethod
    def elsewhere(cls, address: str) -> "Response":
        """A temporary redirect."""
        return cls(302, headers=[(b"location", address.encode("ascii"))])


def whole(name: str, text: str, least: int, most: int) -> int:
    """Parse a number in a parameter. Raises `BadInput`."""
    if text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX:
        number = int(text)
        if least <= number <= most:
            return number
    raise BadInput(f"{name} must be {least} to {most}, not {text[:100]!a}", code="bad_parameter")


def truth(name: str, text: str) -> bool:
    """Parse a boolean in a parameter. Raises `BadInput`."""
    if text not in ("true", "false"):
        raise BadInput(f"{name} must be true or false, not {text[:100]!a}", code="bad_parameter")
    return text == "true"


def problem(error: OncewardError, headers: Iterable[tuple[bytes, bytes]] = ()) -> Response:
    """The problem document (RFC 9457) of an error."""
    kind = error.kind
    members: dict[str, object] = {
        "type": f"urn:onceward:problem:{error.code}",
        "title": kind.title,
        "status": kind.status,
        # Quoted parts of a request may not be valid text.
        "detail": error.message.encode(errors="backslashreplace").decode(),
        "code": error.code,
        "retry": kind.retry,
    }
    for name, value in error.details.items():
        members.setdefault(name, value)
    more = []
    if kind.retry and kind.status in (429, 503):
        wait_s = error.details.get("retry_after_s")
        later_s = ceil(wait_s) if isinstance(wait_s, float) else 1
        more.append((b"retry-after", str(max(later_s, 1)).encode()))
    body = msgspec.json.encode(members, enc_hook=str)
    return Response(kind.status, body, PROBLEM, [*headers, *more])


def body_too_large(most_bytes: int, whose: str = "this request") -> BadInput:
    """The error for a body over the limit."""
    return BadInput(
        f"the body of {whose} must have at most {most_bytes} bytes", code="body_too_large"
    )


@lru_cache(maxsize=128)
def is_local(host: str) -> bool:
    """Whether the header Host names this machine."""
    return is_loopback(_without_port(host))


def _without_port(host: str) -> str:
    name, colon, port = host.lower().rpartition(":")
    if not colon or not port.isdecimal():
        name = host.lower()
    return name[1:-1] if name[:1] == "[" and name[-1:] == "]" else name


def is_loopback(host: str) -> bool:
    """Whether an address is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
