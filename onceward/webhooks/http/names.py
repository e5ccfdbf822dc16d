"""DNS resolution with address checks.

A lookup blocks a thread until the name servers respond. So each lookup runs in a separate thread,
concurrent lookups of a name share one result, and results are cached for a few seconds.
"""

import asyncio
import socket
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from onceward import limits
from onceward.clock import boot_ns
from onceward.errors import Unreachable
from onceward.webhooks.http.addresses import Guard, Target

Lookup = Callable[[str], Awaitable[Sequence[str]]]
"""Resolves a name to addresses in order of preference. Raises `socket.gaierror`."""


async def look_up(name: str) -> list[str]:
    """Resolve a name with the system's resolver."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[str]] = loop.create_future()

    def tell(addresses: list[str], error: OSError | UnicodeError | None) -> None:
        if found.done():
            return
        if error is None:
            found.set_result(addresses)
        else:
            found.set_exception(error)

    def ask() -> None:
        addresses: list[str] = []
        error: OSError | UnicodeError | None = None
        try:
            rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            addresses = [str(row[4][0]) for row in rows]
        except (OSError, UnicodeError) as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(tell, addresses, error)
        except RuntimeError:
            pass  # the event loop is closed

    # A daemon thread of its own for each lookup: it cannot be cancelled, so shutdown does not wait
    # for it.
    threading.Thread(target=ask, name="onceward-lookup", daemon=True).start()
    return await found


class Names:
    """Resolves names, for one event loop."""

    def __init__(
        self,
        guard: Guard,
        lookup: Lookup = look_up,
        elapsed_ns: Callable[[], int] = boot_ns,
    ) -> None:
        self._guard = guard
        self._lookup = lookup
        self._elapsed_ns = elapsed_ns
        self._running: dict[str, asyncio.Task[Sequence[str]]] = {}
        self._known: OrderedDict[str, tuple[int, Sequence[str]]] = OrderedDict()
        """The cache: expiry and addresses of each name."""
        self._threads = asyncio.Semaphore(limits.LOOKUPS_MAX)

    async def addresses(self, target: Target) -> Sequence[str]:
        """Return the allowed addresses of a target, in order of preference.

        Raises `Unreachable` if there are none, and `AddressRefused` if any address of the name is
        not allowed.
        """
        if target.address is not None:
            addresses: Sequence[str] = [str(target.address)]
        else:
            until_ns, addresses = self._known.get(target.host, (0, []))
            if until_ns <= self._elapsed_ns():
                addresses = await self._ask(target.host)
        self._guard.judge_all(addresses, target)
        return addresses[: limits.ADDRESSES_TRIED_MAX]

    def forget(self, name: str) -> None:
        """Remove a name from the cache, because its addresses did not work."""
        self._known.pop(name, None)

    def close(self) -> None:
        """Stop waiting for lookups."""
        for task in self._running.values():
            task.cancel()

    async def _ask(self, name: str) -> Sequence[str]:
        task = self._running.get(name)
        if task is None:
            task = asyncio.create_task(self._run(name), name="onceward-lookup")
            self._running[name] = task
            task.add_done_callback(lambda task: self._done(name, task))
        # Cancelling one waiter does not cancel the shared lookup.
        await asyncio.wait([task])
        if task.cancelled():
            raise Unreachable(
                f"cannot resolve {name}: the sender is closed; call again after a restart",
                ours=True,
            )
        try:
            return task.result()
        except Unreachable as error:
            raise Unreachable(
                error.message, ours=error.ours
            ) from error  # a separate exception for each waiter

    async def _run(self, name: str) -> Sequence[str]:
        async with self._threads:
            try:
                # Remove duplicates.
                addresses = list(dict.fromkeys(await self._lookup(name)))
            except (OSError, UnicodeError) as error:
                raise Unreachable(_reason(name, error)) from error
            except RuntimeError as error:  # no thread available
                raise Unreachable(_reason(name, error), ours=True) from error
        if not addresses:
            raise Unreachable(f"{name} has no addresses; check its DNS records")
        self._known[name] = self._elapsed_ns() + int(limits.NAME_S * 1e9), addresses
        self._known.move_to_end(name)
        if len(self._known) > limits.NAMES_KNOWN_MAX:
            self._known.popitem(last=False)
        return addresses

    def _done(self, name: str, task: "asyncio.Task[Sequence[str]]") -> None:
        self._running.pop(name, None)
        if not task.cancelled():
            task.exception()  # mark the exception as retrieved: there may be no waiters left


def _reason(name: str, error: Exception) -> str:
    number = error.args[0] if isinstance(error, socket.gaierror) and error.args else None
    if number == socket.EAI_AGAIN:
        return f"no name server responded for {name}"
    if number in (socket.EAI_NONAME, socket.EAI_NODATA) or isinstance(error, UnicodeError):
        return f"unknown host {name}"
    return f"cannot resolve {name}: {error}"
