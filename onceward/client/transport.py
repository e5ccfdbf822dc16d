"""HTTP requests to a server, with retries and backoff up to a deadline."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import msgspec

from onceward import forks, tracing
from onceward.api import OPERATIONS
from onceward.api.operation import Operation
from onceward.clock import Clock, new_clock
from onceward.contexts import restore
from onceward.errors import (
    BadInput,
    OncewardError,
    OutcomeUnknown,
    Unavailable,
    class_of,
    find_kind,
)
from onceward.ids import Ids
from onceward.json_values import encode
from onceward.quantities import milliseconds
from onceward.webhooks.signing import new_secret

R = TypeVar("R")
T = TypeVar("T")

_PAUSE_S_MIN = 0.05
_PAUSE_S_MAX = 2.0
AWAY_S_MAX = 0.8
"""The longest pause while the server cannot be reached. Such attempts cost little, and a client
reconnects within a second of the server's return. Clients spread theirs over the whole pause."""
PROXY_STATUSES = frozenset((502, 503, 504))
"""Statuses of proxies that cannot reach their server."""
PATIENCE_S = 5.0
"""How long a call may take by default, in addition to the time that it asks the server to wait.
Requests of web applications call the client, so they fail soon if the server cannot be reached."""
CONNECT_S = 2.0
"""How long a connection may take by default."""
WORKER_PATIENCE_S = 60.0
"""How long workers repeat requests by default: they have results to report."""
# The time limits of one request, in addition to the time that it asks the server to wait.
_ANSWER_S = 30.0
_ANSWER_S_MIN = 1.0
_patience_s: ContextVar[float] = ContextVar("patience_s", default=PATIENCE_S)
_PIECE_BYTES = 1 << 16


@contextmanager
def patient(seconds: float) -> Iterator[None]:
    """Repeat requests for longer, with clients whose patience is the default."""
    before = _patience_s.set(seconds)
    try:
        yield
    finally:
        restore(_patience_s, before)


@dataclass(slots=True)
class Course:
    """The course of a call over several requests."""

    lost: bool = False
    """Whether a response was lost. Then an earlier request may have taken effect."""
    once: bool = False
    """Whether the request is not repeated after a lost response."""


class Transport:
    """A connection pool, and the rules by which requests are repeated."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None,
        patience_s: float | None,
        connect_s: float,
        connections: int,
        clock: Clock | None,
        ids: Ids | None,
    ) -> None:
        _admit_address(url)
        if type(connections) is not int or connections < 1:
            raise BadInput(f"`connections` must be a number from 1, not {connections!r}")
        if key is not None and not _is_word(key):
            raise BadInput(
                "an API key or a token must be one word of ASCII; remove spaces and line breaks",
                code="no_credentials",
            )
        self.clock = clock or new_clock()
        self.ids = ids or Ids(self.clock.now_ms)
        self._url = url.rstrip("/")
        self._key = key
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._patience_s = (
            None if patience_s is None else milliseconds(patience_s, "patience_s") / 1000
        )
        self._connect_s = milliseconds(connect_s, "connect_s") / 1000
        if not self._connect_s:
            raise BadInput(
                f"connect_s must be more than 0, not {connect_s!r}: it limits the time of a "
                "connection"
            )
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None
        self.opens_itself = False
        """Whether the next request opens it, as in a forked process."""

    async def open(self) -> Self:
        if self._session is None:
            self.opens_itself = False
            forks.watch(self)
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                connector=aiohttp.TCPConnector(limit=self._connections),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
            )
            # aiohttp would repeat a DELETE silently, and the error of the second request could not
            # be distinguished from success.
            self._session._retry_connection = False
        return self

    def forked(self) -> None:
        """Called in a forked process: the next request uses a new connection."""
        if self._session is not None:
            forks.keep(self._session)
            self._session, self.opens_itself = None, True

    async def close(self) -> None:
        self.opens_itself = False
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()

    async def run(
        self, operation: Operation[R], *path: str, body: Any = None, query: Any = None
    ) -> R:
        """Call an operation, again if its response is lost.

        `path` has the parameters of its path, `body` and `query` are the structs of the request,
        or mappings. Raises `BadInput` for a request that cannot be sent, and the error in the
        response. Raises `Unavailable` if the server cannot be reached for too long, and
        `OutcomeUnknown` if a response was lost and the outcome cannot be determined.
        """
        assert operation.response is not None
        needed = operation.repeats_with
        course = Course(once=bool(needed) and getattr(body, needed, None) is None)
        key = self._fill(operation, body)
        waits = query if operation.query is not None else body
        wait_s = (waits.wait_ms or 0) / 1000 if operation.waits else 0.0
        try:
            found = await self.call(
                operation.method,
                *_words(operation, path),
                type=operation.response,
                body=body,
                query=query,
                wait_s=wait_s,
                course=course,
                key=key,
            )
        except OncewardError as error:
            if not course.lost:
                raise
            if course.once:
                raise OutcomeUnknown(
                    f"the response to {operation.name} was lost; to make it safe to repeat, give "
                    f"{needed}: {error.message}"
                ) from error
            if error.code in operation.unknown_errors:
                raise OutcomeUnknown(
                    f"the response to {operation.name} was lost, and now it fails: "
                    f"{error.message}. Check whether it took effect"
                ) from error
            # A timer that is cancelled was not moved.
            if error.code not in operation.done_errors or error.details.get("state") == "cancelled":
                raise
            return await self._done(operation, path, body, query)
        if course.lost and operation.done_member:
            setattr(found, operation.done_member, True)
        return found

    def _fill(self, operation: Operation[R], body: Any) -> str | None:
        """Fill members of a body with new ids, so that the request can be repeated. Returns the
        header Idempotency-Key."""
        given = getattr(body, "key", None)
        if given:
            return None
        header = None
        for name in operation.fills:
            if name == "Idempotency-Key":
                header = self.ids.new() if given is None else None  # the server rejects ""
            elif not getattr(body, name):
                value = new_secret(self.ids) if name == "secret" else self.ids.new()
                # Some bodies are frozen. This one was made for this call.
                msgspec.structs.force_setattr(body, name, value)
        return header

    async def _done(
        self, operation: Operation[R], path: tuple[str, ...], body: Any, query: Any
    ) -> R:
        """The response to an earlier request, as far as it can be known."""
        assert operation.response is not None
        if operation.method == "DELETE":
            known = dict(zip(operation.parameters, path, strict=True))
            return msgspec.convert(known, operation.response)
        get = OPERATIONS[f"{operation.noun}.get"]
        return await self.call(
            get.method,
            *_words(get, path or (body.id,)),
            type=operation.response,
            query=query if get.query is operation.query else None,
        )

    async def call(
        self,
        method: str,
        *path: str,
        type: type[T],
        body: Any = None,
        query: Any = None,
        wait_s: float = 0.0,
        course: Course | None = None,
        key: str | None = None,
    ) -> T:
        """Send a request until there is a response; returns it.

        `wait_s` is how long the server may take on purpose. `course` records lost responses. `key`
        is the header Idempotency-Key. Raises `BadInput` for a request that cannot be sent, the
        error in the response, and `Unavailable` if the server cannot be reached for too long.
        """
        course = course or Course()
        address = f"{self._url}/" + "/".join(_word(word) for word in path)
        if text := _query(query):
            address += f"?{text}"
        data = None if body is None else _data(body)
        sent = {"Content-Type": "application/json"} if data else {}
        if key is not None:
            sent["Idempotency-Key"] = key
        if (trace := tracing.current()) is not None:
            sent |= trace.headers
        left_s = patience_s = _patience_s.get() if self._patience_s is None else self._patience_s
        until_ns = self.clock.elapsed_ns() + int((patience_s + wait_s) * 1e9)
        known: Any = type
        decode = _decoder(known).decode
        tries = 0
        while True:
            error: OncewardError
            away, after_s = True, 0.0
            try:
                status, raw, after = await self._once(
                    method, address, data, sent, wait_s + self._limit_s(left_s, first=not tries)
                )
                if status < 300:
                    return decode(raw)  # type: ignore[no-any-return]
                error, after_s = problem(status, raw), after
                away = status in PROXY_STATUSES and not after
                if not error.kind.retry or error.code in _TOLD:
                    raise error
                # From a proxy; the server may have done it, unless the request was throttled.
                course.lost = course.lost or status != 429
            except (aiohttp.ClientError, TimeoutError, ConnectionError) as lost:
                refused = isinstance(
                    lost, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
                )
                # Without a connection, the request was not sent.
                course.lost = course.lost or not refused
                what = "cannot connect to" if refused else "no response from"
                error = Unavailable(
                    f"{what} {self._url} ({_why(lost)}). Check that the server is running"
                )
            except msgspec.MsgspecError as odd:
                raise OncewardError(
                    f"cannot read the response of {self._url}: {odd}. Check the URL",
                    code="internal",
                ) from odd
            pause_s = max(self._pause_s(tries, away=away), after_s if tries else 0.0)
            tries += 1
            over = self.clock.elapsed_ns() + pause_s * 1e9 >= until_ns
            if over or (course.lost and course.once):
                raise error
            await self.clock.sleep(pause_s)
            left_s = (until_ns - self.clock.elapsed_ns()) / 1e9 - wait_s

    def _limit_s(self, left_s: float, *, first: bool) -> float:
        """The time limit of a request. The first one has some time without any patience."""
        return min(max(left_s, PATIENCE_S if first else _ANSWER_S_MIN), _ANSWER_S)

    def _pause_s(self, tries: int, *, away: bool) -> float:
        pause_s: float = _PAUSE_S_MIN * 2 ** min(tries, 30)
        if away:
            return min(pause_s, AWAY_S_MAX) * self.ids.fraction()
        return min(pause_s, _PAUSE_S_MAX) * (0.5 + self.ids.fraction() / 2)

    async def _once(
        self, method: str, address: str, data: bytes | None, headers: dict[str, str], limit_s: float
    ) -> tuple[int, bytes, float]:
        if self._session is None:
            if not self.opens_itself:
                raise BadInput(
                    f"the client of {self._url} is closed: use it within `async with client`"
                )
            await self.open()
        assert self._session is not None
        # A large body is sent in pieces, so that the event loop is not blocked.
        whole = data is None or len(data) <= _PIECE_BYTES
        async with (
            asyncio.timeout(limit_s),
            # No redirects: they would turn a POST into a GET.
            self._session.request(
                method,
                address,
                data=data if whole else BytesIO(data or b""),
                headers=headers,
                allow_redirects=False,
            ) as answer,
        ):
            raw = await answer.read()
            try:
                after_s = float(answer.headers.get("Retry-After", 0))
            except ValueError:
                after_s = 0.0
            return answer.status, raw, after_s


# Errors that may pass, but that the caller has to know.
_TOLD = {"lock_held", "too_many_waiters", "storage_full", "conflict", "table_full", "table_paused"}


class _Problem(msgspec.Struct):
    code: str
    detail: str = ""


def problem(status: int, raw: bytes) -> OncewardError:
    """The error in a response of the server or of a proxy."""
    try:
        found = msgspec.json.decode(raw, type=_Problem)
        details = msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        found, details = _Problem("", raw[:200].decode(errors="replace")), {}
    if find_kind(found.code) is not None:
        error = class_of(found.code)(found.detail, code=found.code)
        error.details |= {name: details[name] for name in details if name not in _MEMBERS}
        return error
    text = f"the server responded with status {status}: {found.detail or 'no details'}"
    if status in _PASSING:
        return Unavailable(text)
    if status == 404:  # the server itself has a code in each response
        text += (
            ". Check the URL: a server that is mounted in a web application needs the path as well"
        )
    return OncewardError(text, code="internal")


# Statuses that proxies respond with for a while.
_PASSING = (408, 425, 429, 502, 503, 504)
# Members of all problem documents. Others are details of one error.
_MEMBERS = ("type", "title", "status", "detail", "code", "retry")


def _why(lost: Exception) -> str:
    if isinstance(lost, aiohttp.ConnectionTimeoutError) or (
        isinstance(lost, TimeoutError) and not str(lost)
    ):
        return "timed out"
    if isinstance(lost, aiohttp.ClientSSLError):
        return f"TLS failed: {getattr(lost, 'os_error', lost)}"
    if isinstance(lost, aiohttp.ClientConnectorError) and (lost.errno or 0) > 0:
        return os.strerror(lost.errno or 0).lower()
    return str(lost) or repr(lost)


def _admit_address(url: Any) -> None:
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except (ValueError, TypeError, AttributeError):
        fine = False
    if not fine or parts.query or parts.fragment:
        raise BadInput(
            f"unsupported URL of a server: {str(url)[:100]!a}; use http://… or https://…"
        )


def _is_word(key: Any) -> bool:
    return isinstance(key, str) and key.isascii() and key.isprintable() and " " not in key


@cache
def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type)


def _words(operation: Operation[Any], path: tuple[str, ...]) -> list[str]:
    """The words of a path with its parameters."""
    given = iter(path)
    return [next(given) if word.startswith("{") else word for word in operation.path.split("/")[1:]]


def _parameters(query: Any) -> Mapping[str, Any]:
    """The query parameters that differ from their defaults."""
    if isinstance(query, Mapping):
        return query
    defaults = zip(query.__struct_fields__, query.__struct_defaults__, strict=True)
    members = ((name, getattr(query, name), default) for name, default in defaults)
    return {name: value for name, value, default in members if value != default}


def _query(query: Any) -> str:
    """The text of query parameters; raises `BadInput`."""
    if query is None:
        return ""
    texts = {}
    for name, value in _parameters(query).items():
        if not isinstance(value, str | int):
            raise BadInput(
                f"{name} must be text, a number, true or false, not {type(value).__name__}",
                code="bad_parameter",
            )
        texts[name] = str(value).lower() if isinstance(value, bool) else value
    try:
        return urlencode(texts)
    except UnicodeEncodeError:
        told = "a query parameter contains lone surrogates"
        raise BadInput(told, code="not_text") from None


def _word(word: Any) -> str:
    """A part of a path; raises `BadInput`."""
    if not isinstance(word, str) or not word:
        raise BadInput(f"a name must be a non-empty text, not {str(word)[:100]!a}", code="bad_name")
    try:
        text = quote(word, safe="")
    except UnicodeEncodeError as error:
        raise BadInput(
            f"a name is not valid Unicode: {error}; remove lone surrogates", code="not_text"
        ) from error
    if text in (".", ".."):
        raise BadInput(
            f"{text!r} cannot be a name: it changes the path; use another one", code="bad_name"
        )
    return text


def _data(body: Any) -> bytes:
    """The JSON of a body; raises `BadInput`."""
    try:
        return encode(body, ("request", "body"))
    except BadInput as error:
        raise BadInput(
            f"the request cannot be written as JSON: {error.__cause__}; send plain JSON values",
            code="bad_value",
        ) from error
