"""The interface of text providers: send a text and, if supported, look up its outcome."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from apps.rps import limits
from onceward import BadInput
from onceward.web import Request, Route

logger = logging.getLogger("onceward.rps")

if TYPE_CHECKING:
    from apps.rps.game import Game


class Reply(msgspec.Struct, frozen=True):
    """A text to a player."""

    to: str
    ours: str
    """Our number, from which it is sent; empty if there is only one."""
    text: str
    confirms: bool = False
    """Whether it confirms an opt-out, and is sent in spite of it."""


class Provider:
    """Delivers texts in both directions."""

    name: ClassVar[str]
    asks: ClassVar[bool] = False
    """Whether the outcome of a text can be looked up."""
    answers_keywords: bool = False
    """Whether it confirms STOP and similar words itself, if the text is that word alone."""
    rate: float = 0.0
    """The maximum number of texts per second; 0 for no limit."""

    game: "Game"

    def join(self, game: "Game") -> None:
        """Called once by the game whose texts it delivers."""
        self.game = game
        self._told_ns: int | None = None
        self._left_out = 0

    def address(self, sender: str) -> str:
        """The address of a player who texts through this provider. Raises `BadInput`."""
        return self.game.number(sender)

    def note_refused(self, request: Request, error: BadInput) -> None:
        """Count and log a request with an invalid signature. Anyone can make such requests, so the
        log has one line a minute, with the number of omitted ones."""
        self.game.app.meters.count("rps_refused_signatures", provider=self.name)
        now_ns = self.game.app.store.clock.elapsed_ns()
        if self._told_ns is not None and now_ns - self._told_ns < limits.REFUSED_TOLD_S * 1e9:
            self._left_out += 1
            return
        client = request.scope.get("client") or ("an unknown address",)
        more = f" ({self._left_out} more since the last line)" if self._left_out else ""
        logger.warning("%s: rejected a request from %s: %s%s", self.name, client[0], error, more)
        self._told_ns, self._left_out = now_ns, 0

    def routes(self) -> Sequence[Route]:
        """The endpoints to which it delivers texts."""
        return ()

    async def send(self, id_: str, reply: Reply) -> Any:
        """Send a text, and return the provider's data about it.

        A permanently rejected text, for example to a phone that has opted out, returns `{"refused":
        ...}`; with `"opted_out": True` if the provider rejects all texts to that phone. Raises
        `NotDone` if it was certainly not sent and must be retried. After any other error the
        outcome is unknown: it is looked up, or in doubt.
        """
        raise NotImplementedError

    async def ask(self, id_: str, reply: Reply, created_ms: int) -> Any:
        """Look up the result of `send` for an interrupted text. Raises `NotDone` if it was
        certainly not sent; after any other error it is in doubt."""
        raise NotImplementedError
