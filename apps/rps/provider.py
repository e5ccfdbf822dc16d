"""What the game asks of those who deliver texts: to send one, and, if they can, to tell whether
they have sent it."""

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
    """Our number, from which it comes; empty where there is only one."""
    text: str
    confirms: bool = False
    """Whether it confirms that the phone has opted out, and is sent though it has."""


class Provider:
    """One who delivers texts, in both directions."""

    name: ClassVar[str]
    asks: ClassVar[bool] = False
    """Whether it can be asked what became of a text."""
    answers_keywords: bool = False
    """Whether it confirms STOP and the like itself, if the text is that word alone."""
    rate: float = 0.0
    """How many texts a second it takes; 0: any number."""

    game: "Game"

    def join(self, game: "Game") -> None:
        """Called once, by the game whose texts it delivers."""
        self.game = game
        self._told_ns: int | None = None
        self._left_out = 0

    def address(self, sender: str) -> str:
        """What a player is known by who texts from there. Raises `BadInput`."""
        return self.game.number(sender)

    def note_refused(self, request: Request, error: BadInput) -> None:
        """Count and log a request whose signature was refused. Anybody can make such requests, so
        the log has one line a minute, with the number of those left out."""
        self.game.app.meters.count("rps_refused_signatures", provider=self.name)
        now_ns = self.game.app.store.clock.elapsed_ns()
        if self._told_ns is not None and now_ns - self._told_ns < limits.REFUSED_TOLD_S * 1e9:
            self._left_out += 1
            return
        client = request.scope.get("client") or ("an unknown address",)
        more = f" ({self._left_out} more since the last line)" if self._left_out else ""
        logger.warning("%s: refused a request from %s: %s%s", self.name, client[0], error, more)
        self._told_ns, self._left_out = now_ns, 0

    def routes(self) -> Sequence[Route]:
        """Where it delivers texts to."""
        return ()

    async def send(self, id_: str, reply: Reply) -> Any:
        """Send a text, and return what is known of it. A text that is refused for good, such
        as one to someone who wants none, is returned as `{"refused": ...}`; with `"opted_out":
        True` if the provider refuses all texts to that phone because it has opted out.

        Raises `NotDone` if it has surely not been sent and is to be tried again. With any other
        error nobody knows: it is asked for, or in doubt.
        """
        raise NotImplementedError

    async def ask(self, id_: str, reply: Reply, created_ms: int) -> Any:
        """What `send` would have returned for a text that was cut off. Raises `NotDone` if it
        was surely not sent; with any other error it is in doubt."""
        raise NotImplementedError
