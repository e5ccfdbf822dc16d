"""The connection pool: opens connections on demand and replaces lost ones.

It is the only module that uses the driver. It maps errors by their meaning for a statement:
`Rejected` (the server rejected it; nothing was changed) and `Lost` (the outcome is unknown).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, Self, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import asyncpg  # type: ignore[import-untyped]

from onceward import limits
from onceward.clock import boot_ns
from onceward.errors import BadInput, CannotOpen, OncewardError, StorageFull, Unavailable

# All statements find their rows by key, so a plan from when the table was small must not be used
# when it is large. Timeouts end statements whose caller is gone. The settings are applied by a
# statement, since poolers reject such startup parameters.
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

# Errors after which the outcome of a statement is unknown.
_UNKNOWN: Final = ("08", "40003")


class Rejected(Exception):
    """The server rejected a statement and rolled it back: nothing was changed."""

    def __init__(self, sqlstate: str, message: str) -> None:
        self.sqlstate = sqlstate
        super().__init__(f"{message} ({sqlstate})")

    def explained(self) -> BadInput | Unavailable:
        """The error for the caller of the engine."""
        if self.sqlstate == "53100":
            return StorageFull(
                f"the database server is out of disk space: {self}. Free disk space."
            )
        if self.sqlstate[:2] in ("22", "54"):
            return BadInput(
                f"the database rejected a value: {self}. Change the value.", code="bad_value"
            )
        known = self.sqlstate[:2] in ("25", "40", "53", "55", "57")
        return Unavailable(
            f"the database rejected the call: {self}. Nothing was changed. Check the log of "
            "the database.",
            code="engine_unreachable" if known else "storage_failed",
        )


class Lost(Exception):
    """The response was lost: the statement may have been executed, or may still be."""

    def __init__(self, reason: str, timed_out: bool = False) -> None:
        self.timed_out = timed_out
        super().__init__("no response in time" if timed_out else reason)


class Crowded(CannotOpen):
    """The server accepts no further connections at this time; existing ones remain usable."""

    default_code = "engine_unreachable"


class Target(NamedTuple):
    """The address of a database, and the schema in it."""

    dsn: str
    schema: str
    label: str
    """The address for messages, without the password."""

    @classmethod
    def parse(cls, url: str) -> "Target":
        """Parse a URL. `schema` is for the engine, other parameters are for the driver. Raises
        `BadInput`.
        """
        parts = urlsplit(url)
        _admit_place(parts)
        query = parse_qsl(parts.query, keep_blank_values=True)
        schema = dict(query).get("schema", "onceward")
        plain = schema.isascii() and schema.isidentifier() and schema == schema.lower()
        if not plain or len(schema) > limits.SCHEMA_BYTES_MAX or schema.startswith("pg_"):
            raise BadInput(
                f"invalid schema name {schema!r}: use lower-case letters, digits and _, "
                f"at most {limits.SCHEMA_BYTES_MAX} characters",
                code="bad_engine_url",
            )
        rest = urlencode([(name, value) for name, value in query if name != "schema"])
        dsn = f"{parts.scheme}://{parts.netloc}{parts.path}{'?' if rest else ''}{rest}"
        host = parts.netloc.rpartition("@")[2] or "the local server"
        return cls(dsn, schema, f"{host}{parts.path} (schema {schema})")


def _admit_place(parts: SplitResult) -> None:
    """Reject a URL with unescaped characters in the password: error messages would quote parts of
    it.
    """
    places = parts.netloc.rpartition("@")[2].split(",")
    ports = [place.rpartition("]")[2].partition(":")[2] for place in places]
    cut = "@" in parts.path or "#" in parts.geturl()
    if cut or not all(port.isdecimal() or not port for port in ports):
        raise BadInput(
            "invalid database URL: it has an @ after its path, a #, or a port that is not a "
            "number; "
            "write / ? # and @ in a password as %2F, %3F, %23 and %40",
            code="bad_engine_url",
        )


class Admission(Protocol):
    """Decides whether a new connection may be used."""

    async def admit(self, link: "Link", /) -> None:
        """Raises `CannotOpen`, `Rejected` or `Lost`."""

    def acknowledged(self, lane: int, number: int, /) -> None:
        """Store the number of the last acknowledged batch of a lane."""


class Link:
    """One connection, for one statement at a time."""

    ready: ClassVar[str] = _GET_READY
    """The first statement."""

    def __init__(
        self, connection: Any, answer_s: float, admission: Admission | None = None
    ) -> None:
        self._connection = connection
        self._admission = admission
        self.answer_s = answer_s
        """The response time after which the connection is closed."""
        self._timed_out = False
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def connect(
        cls,
        target: Target,
        answer_s: float = limits.ANSWER_S,
        admission: Admission | None = None,
    ) -> Self:
        """Open a connection. Raises `CannotOpen` with a code for the reason, or `BadInput` for a
        bad URL.
        """
        try:
            connection = await asyncpg.connect(target.dsn, timeout=limits.CONNECT_S)
        except Exception as error:
            # An untrusted certificate is a ValueError as well; it may be replaced later.
            if isinstance(error, ValueError) and not isinstance(error, OSError):
                raise BadInput(
                    f"{target.label}: {error}. Correct the URL.", code="bad_engine_url"
                ) from error
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
        """Prepare the connection before its first use."""
        [(standby, *_)] = await self.fetch(self.ready)
        if standby:
            raise CannotOpen(
                f"{target.label} is a read-only standby. Use the URL of the primary.",
                code="read_only",
            )
        if self._admission is not None:
            await self._admission.admit(self)

    @property
    def closed(self) -> bool:
        return bool(self._connection.is_closed())

    async def fetch(self, query: str, *arguments: object) -> Sequence[Any]:
        """Run one statement and return its rows. It is a transaction unless one was begun.

        Raises `Rejected`, or `Lost` if the connection broke or timed out.
        """
        rows: Sequence[Any] = await self._answer(self._connection.fetch(query, *arguments))
        return rows

    async def run(self, script: str) -> None:
        """Run several statements without arguments as one transaction."""
        await self._answer(self._connection.execute(script))

    async def prepare(self, name: str, query: str) -> Callable[..., Awaitable[Sequence[Any]]]:
        """Prepare a named statement; returns a function like `fetch`."""
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
        # The driver's time limit would wait for a server that may be gone.
        timer = self._loop.call_later(self.answer_s, self._give_up)
        try:
            return await call
        except asyncpg.PostgresError as error:
            refused = error.severity_en == "ERROR" or isinstance(error, asyncpg.DataError)
            if refused and not error.sqlstate.startswith(_UNKNOWN):
                raise Rejected(error.sqlstate, str(error)) from error
            # A backend that is shutting down may have applied the statement. A pooler reports a
            # lost server by an ordinary error.
            self.drop()
            raise Lost(str(error), self._timed_out) from error
        except (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            self.drop()
            raise Lost(str(error), self._timed_out) from error
        except BaseException:
            # Cancelled while the statement runs, so the connection cannot be reused.
            self.drop()
            raise
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        self._timed_out = True
        self.drop()

    def drop(self) -> None:
        """Close immediately, without waiting for running statements. Idempotent."""
        if not self._connection.is_closed():
            self._connection.terminate()

    async def close(self) -> None:
        """Close the connection, with a short timeout if the server does not respond."""
        with suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            await self._connection.close(timeout=limits.LEAVE_S)


L = TypeVar("L", bound=Link)


class Links(Generic[L]):
    """A pool of up to `count` connections. While the server is unreachable, `take` fails
    immediately.
    """

    def __init__(self, make: Callable[[], Awaitable[L]], count: int) -> None:
        """`make` opens a connection; every exception means that none is available."""
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
        """Take a connection for exclusive use until `give`. Raises `Unavailable`."""
        while True:
            if self._closed:
                raise Unavailable(
                    "the engine was closed during the call; open it again",
                    code="engine_closed",
                )
            while self._idle:
                link = self._idle.pop()
                if not link.closed:
                    return link
                self._live -= 1
            if self._down is not None:
                raise Unavailable(f"{self._down} Nothing was changed.")
            made = await (self._make_one() if self._may_make() else self._wait())
            if made is not None:
                return made

    def _may_make(self) -> bool:
        crowded = self._live > 0 and boot_ns() < self._crowded_until_ns
        return self._live < self._count and not crowded

    def give(self, link: L) -> None:
        """Return a connection, open or closed. The longest waiter gets it."""
        if self._closed:
            link.drop()
        if link.closed:
            self._live -= 1
            self._hand(None)
        elif not self._hand(link):
            self._idle.append(link)

    async def _wait(self) -> L | None:
        """The next connection given back, or None to check the pool again."""
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
        """Close all connections. Those in use are closed when they are given back."""
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
        """A new connection, or None if existing ones must be shared because the server rejects
        others.
        """
        self._live += 1
        try:
            return await self._make()
        except Exception as error:
            self._live -= 1
            if isinstance(error, Crowded) and self._live > 0:
                self._crowded_until_ns = boot_ns() + int(limits.RECONNECT_S_MAX * 1e9)
                return None
            self._go_down(error)
            raise Unavailable(f"{_reason(error)} Nothing was changed.") from error
        except BaseException:
            self._live -= 1
            self._hand(None)
            raise

    def _go_down(self, error: Exception) -> None:
        if self._down is None and not self._closed:
            self._down = _reason(error)
            self._healing = asyncio.get_running_loop().create_task(
                self._heal(), name="onceward-postgres-reconnect"
            )
            while self._hand(None):
                pass

    async def _heal(self) -> None:
        """Reconnect with growing pauses until it succeeds."""
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
    return error.message if isinstance(error, OncewardError) else f"Unexpected error: {error!r}."


def cannot_connect(target: Target, error: Exception) -> CannotOpen:
    """The error for the caller of `open` when a connection failed."""
    sqlstate = getattr(error, "sqlstate", None) or ""
    if sqlstate == "3D000":
        return CannotOpen(
            f"{target.label}: the database does not exist. Create it with ENCODING 'UTF8'.",
            code="no_such_database",
        )
    if sqlstate.startswith("28") or sqlstate == "42501":
        return CannotOpen(
            f"{target.label} denied access: {error}. Check the user and the password.",
            code="access_denied",
        )
    if sqlstate == "53300":
        return Crowded(f"{target.label} accepts no further connections: {error}.")
    if "startup parameter" in str(error):
        return CannotOpen(
            f"{target.label}, a pooler, rejected a parameter of the URL: {error}. Remove it from "
            "the URL, or configure the pooler to ignore it.",
            code="bad_engine_url",
        )
    reason = "no response in time" if isinstance(error, TimeoutError) else str(error)
    return CannotOpen(
        f"cannot connect to {target.label}: {reason}. Check the URL, and that the "
        "database is running.",
        code="engine_unreachable",
    )
