"""The connection pool: opens connections on demand and replaces lost ones.

The one place that knows the driver. Its errors are told apart by what they mean for a
statement: `Rejected` (the server said no; nothing was changed) and `Lost` (no one knows).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import asyncpg  # type: ignore[import-untyped]

from onceward import limits
from onceward.clock import boot_ns
from onceward.errors import BadInput, CannotOpen, OncewardError, StorageFull, Unavailable

# For this program's own statements, which all find their rows by key: no plan made while the
# table was small may live on when it is large. No statement may outlive its caller for long.
# Set by a statement, since poolers refuse such parameters at the start of a connection.
_SETTINGS: Final = {
    "application_name": "onceward",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "default_transaction_isolation": "read committed",
    "statement_timeout": str(limits.STATEMENT_MS),
    "lock_timeout": str(limits.LOCK_MS),
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
_GET_READY: Final = "SELECT pg_is_in_recovery(), " + ", ".join(
    f"set_config('{name}', '{value}', false)" for name, value in _SETTINGS.items()
)

# Errors that leave open what became of the statement: lost connections, and just that.
_UNKNOWN: Final = ("08", "40003")


class Rejected(Exception):
    """The server refused a statement and rolled it back: nothing was changed."""

    def __init__(self, sqlstate: str, message: str) -> None:
        self.sqlstate = sqlstate
        super().__init__(f"{message} ({sqlstate})")

    def explained(self) -> BadInput | Unavailable:
        """The same as an error for the caller of the engine."""
        if self.sqlstate == "53100":
            return StorageFull(f"the server has no space left: {self}")
        if self.sqlstate[:2] in ("22", "54"):
            return BadInput(f"the server cannot take this: {self}", code="bad_value")
        known = self.sqlstate[:2] in ("25", "40", "53", "55", "57")
        return Unavailable(
            f"the server refused: {self}. Nothing was changed by this call.",
            code="engine_unreachable" if known else "storage_failed",
        )


class Lost(Exception):
    """No answer came: the statement may or may not have been, or yet be, carried out."""

    def __init__(self, reason: str, timed_out: bool = False) -> None:
        self.timed_out = timed_out
        super().__init__("no answer in time" if timed_out else reason)


class Crowded(CannotOpen):
    """The server takes no more connections for now; those that there are can be used."""

    default_code = "engine_unreachable"


class Target(NamedTuple):
    """Where the database is, and which schema in it is ours."""

    dsn: str
    schema: str
    label: str
    """For messages: without the password."""

    @classmethod
    def parse(cls, url: str) -> "Target":
        """`schema` of the query is ours, the rest is the driver's. Raises `BadInput`."""
        parts = urlsplit(url)
        _admit_place(parts)
        query = parse_qsl(parts.query, keep_blank_values=True)
        schema = dict(query).get("schema", "onceward")
        plain = schema.isascii() and schema.isidentifier() and schema == schema.lower()
        if not plain or len(schema) > limits.SCHEMA_BYTES_MAX or schema.startswith("pg_"):
            raise BadInput(
                f"{schema!r} cannot be the schema: use small letters, digits and _, "
                f"at most {limits.SCHEMA_BYTES_MAX}",
                code="bad_engine_url",
            )
        rest = urlencode([(name, value) for name, value in query if name != "schema"])
        dsn = f"{parts.scheme}://{parts.netloc}{parts.path}{'?' if rest else ''}{rest}"
        host = parts.netloc.rpartition("@")[2] or "the local server"
        return cls(dsn, schema, f"{host}{parts.path} (schema {schema})")


def _admit_place(parts: SplitResult) -> None:
    """Raise `BadInput` for a URL whose password ends it early: the driver's errors, and our own
    label, would quote what follows."""
    places = parts.netloc.rpartition("@")[2].split(",")
    ports = [place.rpartition("]")[2].partition(":")[2] for place in places]
    cut = "@" in parts.path or "#" in parts.geturl()
    if cut or not all(port.isdecimal() or not port for port in ports):
        raise BadInput(
            "the database URL has an @ behind its path, a #, or a port that is not a number; "
            "write / ? # and @ in a password as %2F, %3F, %23 and %40",
            code="bad_engine_url",
        )


class Admission(Protocol):
    """Decides whether a new connection may be used."""

    async def admit(self, link: "Link", /) -> None:
        """Raises `CannotOpen`, `Rejected` or `Lost`."""

    def acknowledged(self, lane: int, number: int, /) -> None:
        """Note the last batch of commits that was acknowledged on a lane."""


class Link:
    """One connection, for one statement at a time."""

    def __init__(
        self, connection: Any, answer_s: float, admission: Admission | None = None
    ) -> None:
        self._connection = connection
        self._admission = admission
        self.answer_s = answer_s
        """After so long without an answer the connection is given up."""
        self._timed_out = False
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def connect(
        cls,
        target: Target,
        answer_s: float = limits.ANSWER_S,
        admission: Admission | None = None,
    ) -> Self:
        """Raises `CannotOpen` with a code that says why, or `BadInput` for a bad URL."""
        try:
            connection = await asyncpg.connect(target.dsn, timeout=limits.CONNECT_S)
        except Exception as error:
            # A certificate that does not convince is a ValueError, too, and may be replaced.
            if isinstance(error, ValueError) and not isinstance(error, OSError):
                raise BadInput(f"{target.label}: {error}", code="bad_engine_url") from error
            raise cannot_connect(target, error) from error
        link = cls(connection, answer_s, admission)
        try:
            await link._get_ready(target)
        except BaseException as error:
            link.drop()
            if isinstance(error, Lost | Rejected):
                raise cannot_connect(target, error) from error
            raise
        return link

    async def _get_ready(self, target: Target) -> None:
        """What is done once, before the connection is used."""
        [(standby, *_)] = await self.fetch(_GET_READY)
        if standby:
            raise CannotOpen(
                f"{target.label} is a standby, which cannot be written. Name the primary.",
                code="read_only",
            )
        if self._admission is not None:
            await self._admission.admit(self)

    @property
    def closed(self) -> bool:
        return bool(self._connection.is_closed())

    async def fetch(self, query: str, *arguments: object) -> Sequence[Any]:
        """The rows of one statement, a transaction of its own unless one was begun.

        Raises `Rejected`, or `Lost` when the connection broke or no answer came in time.
        """
        rows: Sequence[Any] = await self._answer(self._connection.fetch(query, *arguments))
        return rows

    async def run(self, script: str) -> None:
        """Carry out several statements without arguments, as one transaction."""
        await self._answer(self._connection.execute(script))

    async def prepare(self, name: str, query: str) -> Callable[..., Awaitable[Sequence[Any]]]:
        """Prepare a statement under a name; returns a function like `fetch` for it."""
        statement = await self._answer(self._connection.prepare(query, name=name))

        async def fetch(*arguments: object) -> Sequence[Any]:
            rows: Sequence[Any] = await self._answer(statement.fetch(*arguments))
            return rows

        return fetch

    async def listen(self, channel: str, heard: Callable[[str], None]) -> None:
        """Call `heard` with the payload of each notification."""
        await self._answer(
            self._connection.add_listener(channel, lambda _c, _pid, _n, text: heard(text))
        )

    def on_closed(self, closed: Callable[[], None]) -> None:
        self._connection.add_termination_listener(lambda _connection: closed())

    async def _answer(self, call: Awaitable[Any]) -> Any:
        # The driver's own time limit would wait for a server that may be gone.
        timer = self._loop.call_later(self.answer_s, self._give_up)
        try:
            return await call
        except asyncpg.PostgresError as error:
            refused = error.severity_en == "ERROR" or isinstance(error, asyncpg.DataError)
            if refused and not error.sqlstate.startswith(_UNKNOWN):
                raise Rejected(error.sqlstate, str(error)) from error
            # A backend that was told to stop may have been about to answer; and a pooler may say
            # that it has lost the server, in an error like any other.
            self.drop()
            raise Lost(str(error), self._timed_out) from error
        except (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            self.drop()
            raise Lost(str(error), self._timed_out) from error
        except BaseException:
            # Cancelled: the statement goes on, so the connection cannot be used again.
            self.drop()
            raise
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        self._timed_out = True
        self.drop()

    def drop(self) -> None:
        """Close at once, whatever is under way; twice is once."""
        if not self._connection.is_closed():
            self._connection.terminate()

    async def close(self) -> None:
        """Take leave of the server; not for long if it does not answer."""
        with suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            await self._connection.close(timeout=limits.LEAVE_S)


L = TypeVar("L", bound=Link)


class Links(Generic[L]):
    """Up to `count` connections to share. While none can be made, all are told so at once."""

    def __init__(self, make: Callable[[], Awaitable[L]], count: int) -> None:
        """Whatever `make` raises, there is no connection to be had then."""
        self._make = make
        self._count = count
        self._live = 0
        self._idle: list[L] = []
        self._waiting: deque[asyncio.Future[L | None]] = deque()
        self._down: str | None = None
        self._crowded_until_ns = 0
        self._healing: asyncio.Task[None] | None = None
        self._closed = False

    async def take(self) -> L:
        """A connection for the caller alone, to `give` back; raises `Unavailable`."""
        while True:
            if self._closed:
                raise Unavailable("the engine was closed meanwhile", code="engine_closed")
            while self._idle:
                link = self._idle.pop()
                if not link.closed:
                    return link
                self._live -= 1
            if self._down is not None:
                raise Unavailable(f"{self._down} Nothing was changed by this call.")
            made = await (self._make_one() if self._may_make() else self._wait())
            if made is not None:
                return made

    def _may_make(self) -> bool:
        crowded = self._live > 0 and boot_ns() < self._crowded_until_ns
        return self._live < self._count and not crowded

    def give(self, link: L) -> None:
        """Give a connection back, open or closed: to who has waited longest."""
        if self._closed:
            link.drop()
        if link.closed:
            self._live -= 1
            self._hand(None)
        elif not self._hand(link):
            self._idle.append(link)

    async def _wait(self) -> L | None:
        """The next connection given back, or None: look again what there is."""
        waiter: asyncio.Future[L | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                given = waiter.result()
                if given is None:
                    self._hand(None)
                else:
                    self.give(given)
            raise

    def _hand(self, link: L | None) -> bool:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(link)
                return True
        return False

    async def close(self) -> None:
        """Close all connections; those that are out, when they are given back."""
        self._closed = True
        while self._hand(None):
            pass
        idle, self._idle = self._idle, []
        self._live -= len(idle)
        try:
            if self._healing is not None:
                self._healing.cancel()
                await asyncio.wait([self._healing])
            await asyncio.gather(*(link.close() for link in idle))
        finally:
            for link in idle:
                link.drop()

    async def _make_one(self) -> L | None:
        """A new connection, or None: there is no room for more, so share those that there are."""
        self._live += 1
        try:
            return await self._make()
        except Exception as error:
            self._live -= 1
            if isinstance(error, Crowded) and self._live > 0:
                self._crowded_until_ns = boot_ns() + int(limits.RECONNECT_S_MAX * 1e9)
                return None
            self._go_down(error)
            raise Unavailable(f"{_reason(error)} Nothing was changed by this call.") from error
        except BaseException:
            self._live -= 1
            self._hand(None)
            raise

    def _go_down(self, error: Exception) -> None:
        if self._down is None and not self._closed:
            self._down = _reason(error)
            self._healing = asyncio.get_running_loop().create_task(self._heal())
            while self._hand(None):
                pass

    async def _heal(self) -> None:
        """Try again until there is a connection, ever more slowly."""
        pause_s = limits.RECONNECT_S_MIN
        while True:
            await asyncio.sleep(pause_s)
            try:
                link = await self._make()
            except Exception as error:
                self._down = _reason(error)
                pause_s = min(pause_s * 2, limits.RECONNECT_S_MAX)
                continue
            self._down = None
            self._live += 1
            self.give(link)
            return


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, OncewardError) else f"Unexpectedly: {error!r}."


def cannot_connect(target: Target, error: Exception) -> CannotOpen:
    """What went wrong with a new connection, as an error for whoever opens the engine."""
    sqlstate = getattr(error, "sqlstate", None) or ""
    if sqlstate == "3D000":
        return CannotOpen(
            f"{target.label}: there is no such database. Create it, with ENCODING 'UTF8'.",
            code="no_such_database",
        )
    if sqlstate.startswith("28") or sqlstate == "42501":
        return CannotOpen(f"{target.label} refused the user: {error}.", code="access_denied")
    if sqlstate == "53300":
        return Crowded(f"{target.label} takes no more connections: {error}.")
    if "startup parameter" in str(error):
        return CannotOpen(
            f"{target.label}, a pooler, refused what the URL says: {error}. Leave it out of the "
            "URL, or let the pooler ignore it.",
            code="bad_engine_url",
        )
    reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)
    return CannotOpen(f"{target.label} cannot be reached: {reason}.", code="engine_unreachable")
