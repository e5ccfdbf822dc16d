"""Pending table operations of a WebSocket connection, matched with their responses."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal, TypedDict

from onceward import limits
from onceward.client.rooms.steps import error_of
from onceward.client.rooms.values import plain
from onceward.errors import OncewardError, OutcomeUnknown, TooLarge
from onceward.rooms.frames import Act, Done, Failed
from onceward.rooms.names import admit_text, encoded

Answer = asyncio.Future[Any]

# The rest of the frame size is for the other fields.
_BODY_BYTES_MAX = limits.FRAME_BYTES_MAX - 4_000


class ActMembers(TypedDict, total=False):
    """The members of the requests of table operations, as keyword arguments."""

    after: str
    game: str | int | None
    id: str
    key: str
    lane: str
    limit: int
    meta: dict[str, Any]
    move: Any
    party: list[str]
    phase: Literal["waiting", "ready", "playing", "closed"]
    policy: dict[str, Any]
    prefix: str
    rating: int
    user: str
    winners: list[str]


class Acts:
    """The acts of one connection and of the connections that replace it."""

    def __init__(self, send: Callable[[Act], None]) -> None:
        self._send = send
        self._count = 0
        self._waiting: dict[int, tuple[Act, Answer]] = {}
        self._sent: set[int] = set()

    async def ask(self, do: str, table: str, body: ActMembers, *, connected: bool) -> Any:
        """Send an act as soon as there is a connection; return the response.

        Raises the error of the server, `OutcomeUnknown` if the connection is lost before the
        response, and `BadInput` for values that a server would reject.
        """
        act = Act(self._count + 1, do, table, plain(body))
        for text, what in ((do, "the name of an act"), (table, "a table's id")):
            admit_text(text, what, limits.ROOM_ID_BYTES_MAX, empty=True)
        size = len(encoded(act.body))
        if size > _BODY_BYTES_MAX:
            raise TooLarge(
                f"the body of an act must have at most {_BODY_BYTES_MAX} bytes, not {size}",
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
        """Send the acts that were not sent yet."""
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
        """Fail all sent acts after the connection was lost; their outcome is unknown."""
        for n in self._sent:
            act, answer = self._waiting[n]
            if not answer.done():
                answer.set_exception(
                    OutcomeUnknown(
                        "the connection was lost before the response; check whether the act "
                        f"{act.do!r} took effect"
                    )
                )

    def end(self, error: OncewardError) -> None:
        """Fail all acts, because the connection is closed permanently."""
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)
