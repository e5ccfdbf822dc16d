"""Pending table operations of a WebSocket connection, matched with their responses."""

import asyncio
from collections.abc import Callable
from typing import Any

from onceward import limits
from onceward.client.rooms.steps import error_of
from onceward.client.rooms.values import plain
from onceward.errors import OncewardError, OutcomeUnknown, TooLarge
from onceward.rooms.frames import Act, Done, Failed
from onceward.rooms.names import admit_text, encoded

Answer = asyncio.Future[Any]

# The frame around it has room in what is left.
_BODY_BYTES_MAX = limits.FRAME_BYTES_MAX - 4_000


class Acts:
    """Those of one connection, and of those that follow it."""

    def __init__(self, send: Callable[[Act], None]) -> None:
        self._send = send
        self._count = 0
        self._waiting: dict[int, tuple[Act, Answer]] = {}
        self._sent: set[int] = set()

    async def ask(self, do: str, table: str, body: dict[str, Any], *, connected: bool) -> Any:
        """Ask for something, as soon as there is a connection; returns the answer. Raises what
        the server says, `OutcomeUnknown` if the connection is lost before it does, and `BadInput`
        for what no server would read."""
        act = Act(self._count + 1, do, table, plain(body))
        for text, what in ((do, "what is to be done"), (table, "a table's id")):
            admit_text(text, what, limits.ROOM_ID_BYTES_MAX, empty=True)
        size = len(encoded(act.body))
        if size > _BODY_BYTES_MAX:
            raise TooLarge(
                f"what is asked for has at most {_BODY_BYTES_MAX} bytes, not {size}",
                code="value_too_large",
            )
        self._count = n = act.n
        answer: Answer = asyncio.get_running_loop().create_future()
        self._waiting[n] = act, answer
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
