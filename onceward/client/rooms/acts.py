"""What a connection has asked for at tables, and waits for the answers to."""

import asyncio
from collections.abc import Callable
from typing import Any

from onceward.client.rooms.steps import error_of
from onceward.errors import OncewardError, OutcomeUnknown
from onceward.parts.rooms.frames import Act, Done, Failed

Answer = asyncio.Future[Any]


class Acts:
    """Those of one connection, and of those that follow it."""

    def __init__(self, send: Callable[[Act], None]) -> None:
        self._send = send
        self._count = 0
        self._waiting: dict[int, tuple[Act, Answer]] = {}
        self._sent: set[int] = set()

    async def ask(self, do: str, table: str, body: dict[str, Any], *, connected: bool) -> Any:
        """Ask for something, as soon as there is a connection; returns the answer. Raises what
        the server says, and `OutcomeUnknown` if the connection is lost before it does."""
        self._count += 1
        n = self._count
        answer: Answer = asyncio.get_running_loop().create_future()
        self._waiting[n] = Act(n, do, table, body), answer
        if connected:
            self.send_waiting()
        try:
            return await answer
        finally:
            self._waiting.pop(n, None)
            self._sent.discard(n)

    def send_waiting(self) -> None:
        """There is a connection: ask for what was not asked for yet."""
        for n, (act, _) in self._waiting.items():
            if n not in self._sent:
                self._sent.add(n)
                self._send(act)

    def receive(self, frame: Done | Failed) -> None:
        _, answer = self._waiting.get(frame.n, (None, None))
        if answer is not None and not answer.done():
            if isinstance(frame, Done):
                answer.set_result(frame.value)
            else:
                answer.set_exception(error_of(frame.code, frame.detail))

    def lost(self) -> None:
        """The connection is lost: what became of what was asked for is not known."""
        for n in self._sent:
            _, answer = self._waiting[n]
            if not answer.done():
                answer.set_exception(
                    OutcomeUnknown("the connection was lost before an answer came: look again")
                )

    def end(self, error: OncewardError) -> None:
        """There will be no connection any more."""
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)
