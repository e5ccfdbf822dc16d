"""Tables for tic-tac-toe, and a page to play."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import msgspec

from apps.tictactoe.rules import TicTacToe
from onceward import App, NoSuchTable, Transaction
from onceward.web import Pages, Request, Response, Route, Site

TABLES: dict[str, dict[str, Any]] = {
    "classic": {"turn_s": 30, "grace_s": 20},
    "speed": {"kind": "speed"},
    "ranked": {"kind": "ranked"},
}
"""The policies of tables, by id."""
BREAK_S = 3.0
"""How long the final position of a game is shown, unless a policy sets it."""
_PAGES = Pages(files("apps.tictactoe").joinpath("page"))
_FILES = {
    "/": "tictactoe.html",
    "/page.js": "page.js",
    "/page.css": "page.css",
}


class Listed(msgspec.Struct):
    """A table on the page."""

    id: str
    kind: str
    room: str
    """The room of its live view."""


class Hall(msgspec.Struct):
    """All tables of the page."""

    tables: list[Listed]
    now_ms: int


class Club:
    """Tic-tac-toe on an application, added before it starts."""

    def __init__(self, app: App, tables: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """`tables` are policies by the ids of tables, which are created on the first visit."""
        self.app = app
        given = TABLES if tables is None else tables
        self.tables = {id_: {"break_s": BREAK_S, **policy} for id_, policy in given.items()}
        app.game(TicTacToe())

    def site(self) -> Site:
        """The site with the page, to be mounted."""
        routes = _PAGES.routes(_FILES, "The page")
        routes.append(Route("GET", "", self._front, "Redirect to the page", public=True))
        routes.append(Route("GET", "/tables", self._list, "List the tables", public=True))
        return Site(routes)

    async def _front(self, site: Any, request: Request) -> Response:
        return Response.elsewhere(request.scope["root_path"] + "/")

    async def _list(self, site: Any, request: Request) -> Response:
        return Response.of(await self.app.run(self._hall))

    async def _hall(self, tx: Transaction) -> Hall:
        """Return all tables, and create missing ones."""
        hall = Hall([], tx.now_ms)
        for id_, policy in self.tables.items():
            try:
                table = await self.app.seats.get(tx, id_)
            except NoSuchTable:
                table = await self.app.seats.create(
                    tx, id_, policy=policy, game=TicTacToe.name, by="tictactoe"
                )
            hall.tables.append(Listed(id_, table.policy.kind, f"table:{id_}"))
        return hall
