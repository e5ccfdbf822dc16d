"""Phones in the browser: texts come from a page and replies appear on it, with no provider.

It is the provider of the game for trying it out: whoever can open the page can play from any
number. It delivers a reply once for its id, and can always be asked.
"""

import asyncio
from importlib.resources import files
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from apps.rps import limits
from apps.rps.provider import Provider, Reply
from onceward import NotDone, Transaction, keys
from onceward import limits as core_limits
from onceward.web import Pages, Request, Response, Route, insist_dev, parse

OURS = "+12025550100"
"""The number of the game, on the page."""
_SCREEN = "rps-screen"
_HEAD: keys.Key = ("rps-screen-head", "head")
_PAGES = Pages(files("apps.rps").joinpath("page"))
_FILES = {
    "/phones": "phones.html",
    "/phones/phones.js": "phones.js",
    "/phones/phones.css": "phones.css",
}


class Typed(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A text as the page sends it."""

    id: Annotated[str, Meta(min_length=8, max_length=100)]
    """Made by the page: sent again, it is the same text."""
    sender: Annotated[str, Meta(max_length=40)] = msgspec.field(name="from")
    text: Annotated[str, Meta(max_length=limits.TEXT_CHARS_MAX)]


class Shown(msgspec.Struct, frozen=True):
    """A text on the screen of a phone."""

    phone: str
    text: str
    sent: bool
    """Whether the phone has sent it, or got it."""
    id: str


class Phones(Provider):
    """All phones of the page."""

    name: ClassVar[str] = "phones"
    asks: ClassVar[bool] = True

    def __init__(self, *, local: bool = True) -> None:
        """`local`: whether only pages of this machine may be used, in dev mode."""
        self._local = local
        self._changed = asyncio.Event()

    def routes(self) -> list[Route]:
        return [
            *_PAGES.routes(_FILES, "Phones to play with"),
            Route("POST", "/phones/texts", self.receive, "A phone sends a text", public=True),
            Route("GET", "/phones/texts", self.show, "What phones show", public=True),
        ]

    async def receive(self, site: Any, request: Request) -> Response:
        """Take in a text and show it, in one commit; again, it does neither."""
        self._insist_local(request)
        typed = parse(await request.body(limits.REQUEST_BYTES_MAX), Typed)
        game = self.game

        async def accept(tx: Transaction) -> bool:
            receipt = await game.accept(
                self.name, typed.id, typed.sender, typed.text, ours=OURS, tx=tx
            )
            if not receipt.duplicate:
                phone = game.number(typed.sender)
                await _show(tx, Shown(phone, typed.text, True, typed.id))
            return receipt.duplicate

        duplicate = await game.app.run(accept)
        self._tell()
        return Response.of({"duplicate": duplicate})

    async def show(self, site: Any, request: Request) -> Response:
        """What has come on any screen: at once or, after a number, when there is something."""
        self._insist_local(request)
        asked = request.number("after", core_limits.KEY_NUMBER_MAX, default=-1)
        after = max(asked, 0)
        looking = self._look(after, wait_s=limits.WAIT_S if asked >= 0 else 0)
        server = request.scope.get("onceward")
        found = await (looking if server is None else server.patiently(request, looking))
        texts = [
            {"number": int(row.key[1]), **msgspec.to_builtins(row.value)} for row in found or ()
        ]
        return Response.of({"texts": texts, "after": texts[-1]["number"] if texts else after})

    async def send(self, id_: str, reply: Reply) -> dict[str, Any]:
        await self.game.app.run(lambda tx: _show(tx, Shown(reply.to, reply.text, False, id_)))
        self._tell()
        return {"shown": True}

    async def ask(self, id_: str, reply: Reply, created_ms: int) -> dict[str, Any]:
        if await self.game.app.run(lambda tx: tx.get(_id_key(id_))) is None:
            raise NotDone("no phone shows it")
        return {"shown": True}

    def _insist_local(self, request: Request) -> None:
        if self._local:
            insist_dev(request)

    def _tell(self) -> None:
        """Wake up the pages that wait."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _look(self, after: int, wait_s: int) -> list[Any]:
        for waited_s in range(wait_s + 1):
            changed = self._changed
            found = await self.game.app.run(lambda tx: _shown(tx, after))
            if found or waited_s == wait_s:
                return found
            try:
                # Other nodes can show something, too, and nobody here hears of it.
                async with asyncio.timeout(1.0):
                    await changed.wait()
            except TimeoutError:
                pass
        raise AssertionError("it has waited long enough")  # pragma: no cover


async def _shown(tx: Transaction, after: int) -> list[Any]:
    most = limits.SHOWN_MAX
    if not after:
        return (await tx.scan(_SCREEN, Shown, limit=most, reverse=True))[::-1]
    return await tx.scan(_SCREEN, Shown, start=keys.number(after + 1), limit=most)


async def _show(tx: Transaction, shown: Shown) -> None:
    """Show a text, once for its id."""
    if await tx.get(_id_key(shown.id)) is not None:
        return
    number = (await tx.get(_HEAD) or 0) + 1
    until_ms = tx.now_ms + limits.SHOWN_MS
    tx.put(_HEAD, number)
    tx.put((_SCREEN, keys.number(number)), shown, expires_at_ms=until_ms)
    tx.put(_id_key(shown.id), number, expires_at_ms=until_ms)


def _id_key(id_: str) -> keys.Key:
    return "rps-screen-id", keys.join(id_)
