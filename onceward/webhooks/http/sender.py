"""The sender: sends requests to endpoints and reads their responses.

Connections are made only to checked addresses: there is no second lookup between check and
connection. TLS verifies the name, redirects are not followed, and proxy settings of the environment
are ignored.

Connections are reused for the next request to the same host. If the receiver closes a reused
connection before the first byte of a response, the request is sent once more on a new one.
Receivers deduplicate by message id; the response has the number of times it was sent.
"""

import asyncio
import errno
import ssl
from collections.abc import Mapping

from onceward import limits
from onceward.clock import Clock
from onceward.errors import Unreachable
from onceward.webhooks.answers import Answer, read_retry_after
from onceward.webhooks.http.addresses import Guard, Target
from onceward.webhooks.http.connection import Connection, Dropped, Reply
from onceward.webhooks.http.names import Lookup, Names, look_up
from onceward.webhooks.http.places import Places
from onceward.webhooks.http.pool import Key, Pool
from onceward.webhooks.http.requests import write_request

# Too many open files, no ports, no memory: local failures, not the receiver's.
_OURS = {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM}


class Sender:
    """Sends requests, for one event loop.

    Limits the number of concurrent requests. Waiting for that limit counts towards the timeout of a
    request.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        clock: Clock | None = None,
        lookup: Lookup = look_up,
        tls: ssl.SSLContext | None = None,
        sends_max: int = limits.SENDS_MAX,
        sends_per_host_max: int = limits.SENDS_PER_HOST_MAX,
    ) -> None:
        """`tls` has the trusted certificates. Default: those of the system."""
        self._guard = guard
        self._clock = clock or Clock()
        self._names = Names(guard, lookup, self._clock.elapsed_ns)
        self._tls = tls
        self._places = Places(sends_max)
        self._sends_per_host_max = sends_per_host_max
        self._hosts: dict[Key, _Host] = {}
        """Hosts with running requests."""
        self._pool = Pool(self._clock.elapsed_ns)
        self._open: set[Connection] = set()
        self._closed = False
        self.connected = 0
        """The number of connections made."""
        self.repeated = 0
        """The number of requests that were sent twice."""

    @property
    def open(self) -> int:
        """The number of open connections."""
        return len(self._open)

    @property
    def idle(self) -> int:
        """The number of idle connections."""
        return len(self._pool)

    async def send(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        method: str = "POST",
        connect_s: float,
        total_s: float,
    ) -> Answer:
        """Send a request; returns the response with any status, and the start of its body.

        Raises `Unreachable` if there was no response within `total_s`, or no connection within
        `connect_s`. Raises `AddressRefused` for addresses that are not allowed, and `BadInput` for
        an invalid URL or header. Only if `Unreachable.sent` is not 0 can data have reached the
        receiver.
        """
        target = self._guard.parse(url)
        request = write_request(method, target, headers, body)
        began_ns = self._clock.elapsed_ns()
        host = self._hosts.get(target.key)
        if host is None:
            host = self._hosts[target.key] = _Host(self._sends_per_host_max)
        host.users += 1
        try:
            if host.places.free and self._places.free:
                host.places.free -= 1
                self._places.free -= 1
            else:
                await self._enter(host, total_s)
            try:
                return await self._exchange(target, request, began_ns, connect_s, total_s)
            finally:
                host.places.leave()
                self._places.leave()
        finally:
            host.users -= 1
            if not host.users:
                del self._hosts[target.key]

    async def close(self) -> None:
        """Close all connections. Running and new requests fail."""
        self._closed = True
        self._names.close()
        self._pool.close()
        for connection in list(self._open):
            connection.drop()

    async def _enter(self, host: "_Host", total_s: float) -> None:
        try:
            async with asyncio.timeout(total_s):
                await host.places.enter()
                try:
                    await self._places.enter()
                except BaseException:
                    host.places.leave()
                    raise
        except TimeoutError:
            why = f"too many concurrent requests: none ended within {total_s:g} s"
            raise Unreachable(why, took_s=total_s, ours=True) from None

    async def _exchange(
        self, target: Target, request: bytes, began_ns: int, connect_s: float, total_s: float
    ) -> Answer:
        """Send a request, twice if necessary, and wait for its response."""
        until_ns = began_ns + int(total_s * 1e9)
        sent = 0
        connection = self._pool.take(target.key)
        try:
            while True:
                if connection is None:
                    async with asyncio.timeout((until_ns - self._clock.elapsed_ns()) / 1e9):
                        connection = await self._connect(target, connect_s)
                sent += 1
                try:
                    reply = await connection.ask(request, until_ns)
                    break
                except Dropped:
                    if connection.asked == 1:
                        raise Unreachable(
                            "the connection was closed without a response; check the receiver"
                        ) from None
                    self.repeated += 1
                    connection = None
        except TimeoutError:
            # This is the total timeout; `_connect` reports its own.
            missing = "response" if sent else "connection"
            if connection is not None and connection.began:
                missing = "complete response"
            why = f"no {missing} within {total_s:g} s"
            raise Unreachable(why, sent=sent, took_s=self._since_s(began_ns)) from None
        except Unreachable as error:
            error.sent, error.took_s = sent, self._since_s(began_ns)
            raise
        else:
            self._pool.keep(target.key, connection)
            connection = None
            took_s = self._since_s(began_ns)
            return Answer(reply.status, self._retry_after_s(reply), reply.body, took_s, sent)
        finally:
            if connection is not None:
                connection.abort()

    async def _connect(self, target: Target, connect_s: float) -> Connection:
        """Connect to the first of the addresses that accepts."""
        if self._closed:
            raise Unreachable("the sender is closed; repeat the call after the restart", ours=True)
        until_ns = self._clock.elapsed_ns() + int(connect_s * 1e9)
        try:
            async with asyncio.timeout(connect_s):
                addresses = await self._names.addresses(target)
        except TimeoutError:
            raise Unreachable(
                f"cannot resolve {target.host} within {connect_s:g} s; check its DNS records"
            ) from None
        why = ""
        for at, address in enumerate(addresses):
            # Each address gets a share of the remaining time, so that an unresponsive one does not
            # use it up.
            left_s = (until_ns - self._clock.elapsed_ns()) / 1e9
            try:
                async with asyncio.timeout(left_s / (len(addresses) - at)):
                    return await self._connect_to(target, address)
            except TimeoutError:
                why = f"no connection within {connect_s:g} s"
            except OSError as error:
                why = _reason(target, error)
                if error.errno in _OURS:
                    raise Unreachable(why, ours=True) from error
        # The cached addresses may be out of date.
        self._names.forget(target.host)
        raise Unreachable(why)

    async def _connect_to(self, target: Target, address: str) -> Connection:
        tls = None
        if target.scheme == "https":
            tls = self._tls = self._tls or ssl.create_default_context()
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self._ended, self._clock.elapsed_ns),
            address,
            target.port,
            ssl=tls,
            server_hostname=target.host if tls else None,
        )
        if connection.is_reserved:
            connection.abort()
            raise OSError(errno.EMFILE, "too many open files")
        self._open.add(connection)
        self.connected += 1
        return connection

    def _ended(self, connection: Connection) -> None:
        """Called by each connection when it is closed."""
        self._open.discard(connection)
        self._pool.forget(connection)

    def _since_s(self, began_ns: int) -> float:
        return (self._clock.elapsed_ns() - began_ns) / 1e9

    def _retry_after_s(self, reply: Reply) -> float | None:
        if reply.retry_after is None:
            return None
        return read_retry_after(reply.retry_after, reply.date, self._clock.now_ms())


class _Host:
    """Running and waiting requests to one host."""

    __slots__ = ("places", "users")

    def __init__(self, sends_max: int) -> None:
        self.places = Places(sends_max)
        self.users = 0


def _reason(target: Target, error: OSError) -> str:
    """A readable reason for a failed connection."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {target.host} is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection to {target.host}: {error.reason or error}"
    if isinstance(error, ConnectionRefusedError):
        return f"{target.host} refused the connection to port {target.port}"
    return f"no connection to {target.host}: {error.strerror or error}"
