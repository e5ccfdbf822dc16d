"""Tables to play at, and a page for it."""

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
"""Tables by their ids, and the policy of each."""
BREAK_S = 3.0
"""So long the final position of a game stays, unless a policy says otherwise."""
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
    """Its live view."""


class Hall(msgspec.Struct):
    """All tables of the page."""

    tables: list[Listed]
    now_ms: int


class Club:
    """Tic-tac-toe on an application, before that starts."""

    def __init__(self, app: App, tables: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """`tables` are policies by the ids of tables, which are made when someone comes."""
        self.app = app
        given = TABLES if tables is None else tables
        self.tables = {id_: {"break_s": BREAK_S, **policy} for id_, policy in given.items()}
        app.game(TicTacToe())

    def site(self) -> Site:
        """The page, to be mounted."""
        routes = _PAGES.routes(_FILES, "The page")
        routes.append(Route("GET", "", self._front, "Leads to the page", public=True))
        routes.append(Route("GET", "/tables", self._list, "The tables", public=True))
        return Site(routes)

    async def _front(self, site: Any, request: Request) -> Response:
        return Response.elsewhere(request.scope["root_path"] + "/")

    async def _list(self, site: Any, request: Request) -> Response:
        return Response.of(await self.app.run(self._hall))

    async def _hall(self, tx: Transaction) -> Hall:
        """All tables; those that are not there yet are made."""
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
