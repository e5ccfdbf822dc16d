"""Boards as an application: the page, a room for each board, and a ticket for each guest.

Whoever opens the page of a board is a guest with a name. The ticket is a token for the room of that
board alone. Its user is the name and something at random behind it, since two may have the same
name; each tab has a ticket of its own, and so a cursor of its own.
"""

import re
from importlib.resources import files
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from onceward.app import App
from onceward.apps.board import limits
from onceward.apps.board.shapes import SHAPES
from onceward.errors import BadInput, NoSuchRoom, OncewardError
from onceward.transaction import Transaction
from onceward.web.auth import Auth, JwtKey
from onceward.web.bodies import parse
from onceward.web.http import Request, Response
from onceward.web.pages import Pages
from onceward.web.routes import Route
from onceward.web.server import insist_dev
from onceward.web.site import Site

_PAGES = Pages(files("onceward.apps.board").joinpath("page"))
_PAGE = "board.html"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_DEV = "dev:"
# Between a guest's name and what makes it unique.
_MARK = "~"
_UNIQUE_CHARS = 8


class Asked(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a page asks a ticket with."""

    name: Annotated[str, Meta(min_length=1, max_length=limits.NAME_CHARS_MAX)]
    token: Annotated[str, Meta(max_length=limits.TOKEN_CHARS_MAX)] = ""
    """The one before: so the guest stays the same."""


class Ticket(msgspec.Struct):
    """What lets a guest into a board."""

    token: str
    user: str
    room: str


class Board:
    """All boards of an application, below the prefix where `site` is mounted."""

    def __init__(
        self, app: App, *, key: JwtKey | None = None, keep: int = limits.KEEP_STEPS
    ) -> None:
        """`key` signs the tickets (HS256), and has to be one of the server's; without one the
        boards are for dev mode, on this machine alone. `keep` is how many steps the slider reaches
        back. Raises `bad_settings`."""
        if key is not None and key.algorithm != "HS256":
            raise OncewardError(
                f"tickets are signed with a secret, by HS256, not {key.algorithm}",
                code="bad_settings",
            )
        self.app = app
        self._key = key
        self._keep = keep
        self._auth = None if key is None else Auth(jwt_keys=[key])

    def site(self) -> Site:
        """What to mount, below a prefix of one word: `app.mount("/board", board.site())`."""
        return Site(
            [
                Route("GET", "", self.front, "Leads to a board for all", public=True),
                Route("GET", "/", self.front, "Leads to a board for all", public=True),
                Route("GET", "/{name}", self.page, "A board", public=True),
                *_PAGES.routes({"/page/{file}": "{file}"}, "What its page needs"),
                Route(
                    "POST",
                    "/{name}/ticket",
                    self.ticket,
                    "Lets a guest in",
                    takes=Asked,
                    gives=Ticket,
                    public=True,
                ),
            ]
        )

    async def front(self, site: Any, request: Request) -> Response:
        return Response.elsewhere(f"{request.scope.get('root_path', '').rstrip('/')}/welcome")

    async def page(self, site: Any, request: Request) -> Response:
        _named(request)
        return _PAGES.answer(_PAGE)

    async def ticket(self, site: Any, request: Request) -> Response:
        """Let a guest in: the room is there, and the token is good for that room."""
        if self._key is None:
            insist_dev(request)
        room = f"board/{_named(request)}"
        asked = parse(await request.body(limits.REQUEST_BYTES_MAX), Asked)
        user = self._known(asked.token) or self._guest(asked.name)
        await self.app.run(lambda tx: self._make(tx, room, user))
        return Response.of(Ticket(self._token(user, room), user, room))

    async def _make(self, tx: Transaction, room: str, user: str) -> None:
        try:
            await self.app.rooms.info(tx, room)
        except NoSuchRoom:
            await self.app.rooms.create(tx, room, by=user, schemas=SHAPES, keep=self._keep)

    def _guest(self, name: str) -> str:
        name = " ".join(name.replace(_MARK, " ").split())
        if not name or not name.isprintable():
            raise BadInput("a guest's name is text that can be read", code="bad_name")
        return f"{name}{_MARK}{self.app.store.ids.new()[-_UNIQUE_CHARS:]}"

    def _known(self, token: str) -> str:
        """The guest of an earlier ticket; empty if it is none, or too old."""
        if self._auth is None:
            user = token.removeprefix(_DEV)
        else:
            try:
                user = self._auth.caller(f"Bearer {token}", self.app.store.clock.now_ms()).name
            except BadInput:
                return ""
        return user if _MARK in user else ""

    def _token(self, user: str, room: str) -> str:
        if self._key is None:
            return f"{_DEV}{user}"
        import jwt  # here, since it takes long to load

        claims = {
            "sub": user,
            "aud": self._key.audience,
            "exp": (self.app.store.clock.now_ms() + limits.TICKET_MS) // 1000,
            "scope": f"write:{room}",
        }
        if self._key.issuer is not None:
            claims["iss"] = self._key.issuer
        header = None if self._key.id is None else {"kid": self._key.id}
        return jwt.encode(claims, self._key.key, algorithm="HS256", headers=header)


def _named(request: Request) -> str:
    """The name of the board in the path. Raises `BadInput`."""
    name = request.parameters["name"]
    if len(name) > limits.NAME_CHARS_MAX or not _NAME.fullmatch(name):
        raise BadInput(
            f"a board's name has 1 to {limits.NAME_CHARS_MAX} small letters, digits and hyphens",
            code="not_found",
        )
    return name
