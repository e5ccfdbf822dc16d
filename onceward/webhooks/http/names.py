"""DNS resolution with address checks.

To look a name up blocks a thread for as long as its name servers like. So each lookup has a thread
of its own, a name has one at a time, whoever asks meanwhile waits for the same answer, and answers
are kept for a few seconds.
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
"""The addresses of a name, the best ones first. Raises `socket.gaierror`."""


async def look_up(name: str) -> list[str]:
    """The addresses of a name, as the machine knows them."""
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
            pass  # the loop is closed: nobody waits any more

    # Of its own, and not waited for at the end, since nothing can hurry it.
    threading.Thread(target=ask, name="onceward-lookup", daemon=True).start()
    return await found


class Names:
    """Looks names up, for one event loop."""

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
        """Until when it is known, and what."""
        self._threads = asyncio.Semaphore(limits.LOOKUPS_MAX)

    async def addresses(self, target: Target) -> Sequence[str]:
        """To which of them a connection may be made, the best ones first. Raises `Unreachable`
        if there are none, and `AddressRefused` if one of all that the name has is not allowed."""
        if target.address is not None:
            addresses: Sequence[str] = [str(target.address)]
        else:
            until_ns, addresses = self._known.get(target.host, (0, []))
            if until_ns <= self._elapsed_ns():
                addresses = await self._ask(target.host)
        self._guard.judge_all(addresses, target)
        return addresses[: limits.ADDRESSES_TRIED_MAX]

    def forget(self, name: str) -> None:
        """Look a name up anew the next time, since its addresses did not serve."""
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
        # Who gives up waiting does not spoil it for the others.
        await asyncio.wait([task])
        if task.cancelled():
            raise Unreachable(f"{name} was not looked up: the sender is closed", ours=True)
        try:
            return task.result()
        except Unreachable as error:
            raise Unreachable(error.message, ours=error.ours) from error  # one for each who waits

    async def _run(self, name: str) -> Sequence[str]:
        async with self._threads:
            try:
                # Each address once.
                addresses = list(dict.fromkeys(await self._lookup(name)))
            except (OSError, UnicodeError) as error:
                raise Unreachable(_reason(name, error)) from error
            except RuntimeError as error:  # no thread to be had
                raise Unreachable(_reason(name, error), ours=True) from error
        if not addresses:
            raise Unreachable(f"{name} has no addresses")
        self._known[name] = self._elapsed_ns() + int(limits.NAME_S * 1e9), addresses
        self._known.move_to_end(name)
        if len(self._known) > limits.NAMES_KNOWN_MAX:
            self._known.popitem(last=False)
        return addresses

    def _done(self, name: str, task: "asyncio.Task[Sequence[str]]") -> None:
        self._running.pop(name, None)
        if not task.cancelled():
            task.exception()  # there may be nobody left to hear of it


def _reason(name: str, error: Exception) -> str:
    number = error.args[0] if isinstance(error, socket.gaierror) and error.args else None
    if number == socket.EAI_AGAIN:
        return f"no name server answered for {name}"
    if number in (socket.EAI_NONAME, socket.EAI_NODATA) or isinstance(error, UnicodeError):
        return f"there is no host {name}"
    return f"{name} could not be looked up: {error}"
