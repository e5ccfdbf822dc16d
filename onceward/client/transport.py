"""Requests to a server, made again until it answers or patience ends."""

import asyncio
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec

from onceward.clock import Clock
from onceward.errors import TABLE, BadInput, OncewardError, OutcomeUnknown, Unavailable
from onceward.ids import Ids

T = TypeVar("T")

_PAUSE_S_MIN = 0.05
_PAUSE_S_MAX = 2.0
# How long a single request may take beyond the time that the server is asked to wait.
_ANSWER_S = 30.0


class Transport:
    """A connection pool, and the rules by which requests are made again."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None,
        patience_s: float,
        connections: int,
        clock: Clock | None,
        ids: Ids | None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise BadInput(f"a server's address begins with http:// or https://, not {url[:100]!r}")
        self.clock = clock or Clock()
        self.ids = ids or Ids(self.clock.now_ms)
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._patience_s = patience_s
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> Self:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                connector=aiohttp.TCPConnector(limit=self._connections),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self

    async def close(self) -> None:
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

    async def call(
        self,
        method: str,
        *path: str,
        type: type[T],
        body: Any = None,
        query: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> T:
        """Make a request until it is answered; returns what the server says.

        `wait_s` is how long the server may take on purpose. Raises the error that the server
        names; `Unavailable` if it was out of reach for too long.
        """
        address = f"{self._url}/" + "/".join(quote(word, safe="") for word in path)
        if query:
            address += f"?{urlencode(query)}"
        data = None if body is None else msgspec.json.encode(body)
        sent = {**(headers or {}), **({"Content-Type": "application/json"} if data else {})}
        until_ns = self.clock.elapsed_ns() + int((self._patience_s + wait_s) * 1e9)
        tries = 0
        while True:
            error: OncewardError
            after_s = 0.0
            try:
                status, raw, after = await self._once(method, address, data, sent, wait_s)
                if status < 400:
                    return msgspec.json.decode(raw, type=type)
                error, after_s = problem(status, raw), after
                if not error.kind.retry or error.code in _TOLD:
                    raise error
            except (aiohttp.ClientError, TimeoutError, ConnectionError) as lost:
                error = Unavailable(f"{self._url} does not answer: {str(lost) or repr(lost)}")
            except msgspec.MsgspecError as odd:
                raise OncewardError(
                    f"{self._url} gave an answer that is not understood: {odd}", code="internal"
                ) from odd
            pause_s = min(_PAUSE_S_MIN * 2**tries, _PAUSE_S_MAX) * (0.5 + self.ids.fraction() / 2)
            pause_s = max(pause_s, after_s if tries else 0.0)
            tries += 1
            if self.clock.elapsed_ns() + pause_s * 1e9 >= until_ns:
                raise error
            await self.clock.sleep(pause_s)

    async def _once(
        self, method: str, address: str, data: bytes | None, headers: dict[str, str], wait_s: float
    ) -> tuple[int, bytes, float]:
        if self._session is None:
            raise BadInput("the client is closed: use it within `async with client`")
        async with (
            asyncio.timeout(wait_s + _ANSWER_S),
            self._session.request(method, address, data=data, headers=headers) as answer,
        ):
            raw = await answer.read()
            try:
                after_s = float(answer.headers.get("Retry-After", 0))
            except ValueError:
                after_s = 0.0
            return answer.status, raw, after_s


# Errors after which trying again may help, but is for the caller to decide.
_TOLD = {"lock_held", "line_full", "storage_full", "conflict"}


class _Problem(msgspec.Struct):
    code: str
    detail: str = ""


def problem(status: int, raw: bytes) -> OncewardError:
    """The error in an answer: the server's own, or one that a proxy made up."""
    try:
        found = msgspec.json.decode(raw, type=_Problem)
        details = msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        found, details = _Problem("", raw[:200].decode(errors="replace")), {}
    for name in ("type", "title", "status", "detail", "code", "retry", "message"):
        details.pop(name, None)
    if found.code in TABLE:
        kind = _KINDS.get(found.code, OncewardError)
        return kind(found.detail, code=found.code, **details)
    if status in (429, 502, 503, 504):
        return Unavailable(f"the server answers {status}: {found.detail}")
    return OncewardError(f"the server answers {status}: {found.detail}", code="internal")


def _kinds() -> dict[str, type[OncewardError]]:
    """The class of each code, so that callers can tell errors apart as in the package."""
    found: dict[str, type[OncewardError]] = {}
    todo: list[type[OncewardError]] = [OncewardError]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        if "default_code" in vars(kind) and kind.__name__ not in ("Retry",):
            found.setdefault(kind.default_code, kind)
    found.pop(OncewardError.default_code, None)
    found["bad_request"] = BadInput
    found["outcome_unknown"] = OutcomeUnknown
    return found


_KINDS = _kinds()
