"""Boards as an application: the page, a room for each board, and a ticket for each guest.

A visitor of a board's page is a guest with a name. The ticket is a token for the room of that board
alone. Its user is the name with a random suffix, since names are not unique. Each tab has its own
ticket, and so its own cursor.

The first visitor of a name creates its board. Visitors have no credentials, so the number of boards
that they create is limited, and those boards expire. Boards that the application names or creates
are not counted and do not expire.
"""

import asyncio
import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from apps.board import limits
from apps.board.shapes import SHAPES
from onceward import App, BadInput, Caller, NoSuchRoom, OncewardError, Transaction, tokens
from onceward.web import Auth, JwtKey, Pages, Request, Response, Route, Site, insist_dev, parse

_PAGES = Pages(files("apps.board").joinpath("page"))
_PAGE = "board.html"
_FRONT = "welcome"
_PREFIX = "board/"
_OF_VISITOR = {"visitor": True}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_DEV = "dev:"
# Separates a guest's name from its random suffix.
_MARK = "~"
_UNIQUE_CHARS = 8


class Asked(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The request for a ticket."""

    name: Annotated[str, Meta(min_length=1, max_length=limits.NAME_CHARS_MAX)]
    token: Annotated[str, Meta(max_length=limits.TOKEN_CHARS_MAX)] = ""
    """The previous ticket, to keep the same guest."""


class Ticket(msgspec.Struct):
    """The response with a token for a board."""

    token: str
    user: str
    room: str


class Board:
    """All boards of an application, below the prefix where `site` is mounted."""

    def __init__(
        self,
        app: App,
        *,
        key: JwtKey | None = None,
        keep: int = limits.KEEP_STEPS,
        named: Iterable[str] = (_FRONT,),
        boards_max: int = limits.BOARDS_MAX,
        idle_s: float = limits.IDLE_S,
        empty_s: float = limits.EMPTY_S,
    ) -> None:
        """The boards of an application.

        Args:
            key: Signs the tickets (HS256); must be one of the server's keys. Without one the
                boards are for dev mode, on this machine only.
            keep: The number of steps in the history slider.
            named: Boards that are not counted and do not expire.
            boards_max: The maximum number of other boards that visitors may create.
            idle_s: How long such a board lasts without a change, in seconds.
            empty_s: How long it lasts without a change while it has no notes.

        Raises:
            OncewardError: With the code `bad_settings`.
        """
        if key is not None and key.algorithm != "HS256":
            raise OncewardError(
                f"the key of tickets must be a secret for HS256, not {key.algorithm}",
                code="bad_settings",
            )
        self.app = app
        self._key = key
        self._keep = keep
        self._named = {_room(name) for name in named}
        self._boards_max = boards_max
        self._idle_ms, self._empty_ms = idle_s * 1000, empty_s * 1000
        self._creating = asyncio.Lock()
        self._sweep_ms = 0
        """When to look for expired boards next."""
        self._swept = ""
        """The board after which the next search starts."""
        self._auth = None if key is None else Auth(jwt_keys=[key])

    def site(self) -> Site:
        """The site to mount, below a prefix of one word: `app.mount("/board", board.site())`."""
        return Site(
            [
                Route("GET", "", self.front, "Redirect to a common board", public=True),
                Route("GET", "/", self.front, "Redirect to a common board", public=True),
                Route("GET", "/{name}", self.page, "A board", public=True),
                *_PAGES.routes({"/page/{file}": "{file}"}, "Files of the page"),
                Route(
                    "POST",
                    "/{name}/ticket",
                    self.ticket,
                    "Get a ticket for a board",
                    takes=Asked,
                    gives=Ticket,
                    public=True,
                ),
            ]
        )

    async def front(self, site: Any, request: Request) -> Response:
        return Response.elsewhere(f"{request.scope.get('root_path', '').rstrip('/')}/{_FRONT}")

    async def page(self, site: Any, request: Request) -> Response:
        _named(request)
        return _PAGES.answer(_PAGE)

    async def ticket(self, site: Any, request: Request) -> Response:
        """Issue a ticket for a guest: creates the room if needed, and a token for that room."""
        if self._key is None:
            insist_dev(request)
        room = _room(_named(request))
        asked = parse(await request.body(limits.REQUEST_BYTES_MAX), Asked)
        guest = self._known(asked.token) or self._guest(asked.name)
        user = Caller("user", "" if self._key is None else self._key.label, guest).user
        if self.app.store.clock.now_ms() >= self._sweep_ms:
            await self._sweep()
        if not await self.app.run(lambda tx: self._exists(tx, room)):
            await self._create(room, user)
        return Response.of(Ticket(self._token(guest, room), user, room))

    async def _exists(self, tx: Transaction, room: str) -> bool:
        try:
            await self.app.rooms.info(tx, room)
        except NoSuchRoom:
            return False
        return True

    async def _create(self, room: str, user: str) -> None:
        """Create a board for a visitor; idempotent. Raises `too_many_rooms`."""

        async def fn(tx: Transaction) -> None:
            if await self._exists(tx, room):
                return
            meta = {} if room in self._named else _OF_VISITOR
            if meta and await self._count(tx) >= self._boards_max:
                raise OncewardError(
                    f"cannot create the board {room.removeprefix(_PREFIX)!r}: there are "
                    f"{self._boards_max} boards already; open an existing one",
                    code="too_many_rooms",
                )
            rooms = self.app.rooms
            await rooms.create(tx, room, by=user, meta=meta, schemas=SHAPES, keep=self._keep)

        # One at a time: a commit does not detect boards that are created concurrently.
        async with self._creating:
            await self.app.run(fn)

    async def _count(self, tx: Transaction) -> int:
        """The number of boards of visitors, up to the limit."""
        total, after = 0, ""
        while total < self._boards_max:
            found, after = await self.app.rooms.find(
                tx, prefix=_PREFIX, meta=_OF_VISITOR, after=after
            )
            total += len(found)
            if not after:
                break
        return total

    async def _sweep(self) -> None:
        """Remove expired boards among the next few, so that a ticket does not wait for all."""
        self._sweep_ms = self.app.store.clock.now_ms() + limits.SWEEP_MS
        found, self._swept = await self.app.run(
            lambda tx: self.app.rooms.find(
                tx,
                prefix=_PREFIX,
                meta=_OF_VISITOR,
                after=self._swept,
                limit=limits.SWEEP_BOARDS,
            )
        )
        for room, _ in found:
            if not self.app.hub.members(room):
                await self.app.run(lambda tx, room=room: self._expire(tx, room))  # type: ignore[misc]

    async def _expire(self, tx: Transaction, room: str) -> None:
        rooms = self.app.rooms
        try:
            changed_ms = (await rooms.info(tx, room)).created_ms
            for entry in await rooms.newest(tx, room, 1, 1):
                changed_ms = entry.at_ms
            idle_ms = tx.now_ms - changed_ms
            if idle_ms < min(self._idle_ms, self._empty_ms):
                return
            if idle_ms >= self._idle_ms or not await rooms.list(tx, room, "notes"):
                await rooms.remove(tx, room)
        except NoSuchRoom:
            pass  # another node removed it

    def _guest(self, name: str) -> str:
        name = " ".join(name.replace(_MARK, " ").split())
        if not name or not name.isprintable():
            raise BadInput("a guest's name must be printable text", code="bad_name")
        return f"{name}{_MARK}{self.app.store.ids.new()[-_UNIQUE_CHARS:]}"

    def _known(self, token: str) -> str:
        """The guest of an earlier ticket; empty if it is invalid or expired."""
        if self._auth is None:
            guest = token.removeprefix(_DEV)
        else:
            try:
                guest = self._auth.caller(f"Bearer {token}", self.app.store.clock.now_ms()).name
            except BadInput:
                return ""
        return guest if _MARK in guest else ""

    def _token(self, guest: str, room: str) -> str:
        if self._key is None:
            return f"{_DEV}{guest}"
        return tokens.sign(
            self._key.key,
            user=guest,
            write=[room],
            expires_s=limits.TICKET_MS // 1000,
            audience=self._key.audience,
            issuer=self._key.issuer,
            key_id=self._key.id,
            clock=self.app.store.clock,
        )


def _room(name: str) -> str:
    return f"{_PREFIX}{name}"


def _named(request: Request) -> str:
    """The name of the board in the path. Raises `BadInput`."""
    name = request.parameters["name"]
    if len(name) > limits.NAME_CHARS_MAX or not _NAME.fullmatch(name):
        raise BadInput(
            f"a board's name must have 1 to {limits.NAME_CHARS_MAX} small letters, digits and "
            "hyphens",
            code="not_found",
        )
    return name
