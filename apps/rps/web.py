"""Players at a web page, who play those on phones, and each other.

What someone does on the page is a text like any other, and so is what they hear: one queue, one
clock and one log for all. A room for each of them tells that there is news, and nothing else;
what the news is, who has thrown what included, is told to whoever has that player's token.
"""

from importlib.resources import files
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from apps.rps import limits
from apps.rps.duels import thrown
from apps.rps.provider import Provider, Reply
from apps.rps.records import (
    ALL,
    Awaited,
    Player,
    Score,
    Thrown,
    awaiting,
    player_key,
    scores_of,
    thrown_by,
)
from apps.rps.rules import RockPaperScissors
from onceward import BadInput, Caller, NoSuchRoom, NotDone, Transaction, keys
from onceward import limits as core_limits
from onceward.tokens import Grant
from onceward.web import Pages, Request, Response, Route, insist_local, parse

_PAGES = Pages(files("apps.rps").joinpath("page"))
_FILES = {
    "/play": "play.html",
    "/play/play.js": "play.js",
    "/play/play.css": "play.css",
}
_HEAD = "head"
_USER_BYTES_MAX = core_limits.ROOM_ID_BYTES_MAX - len("rps:@")
_SHOWN = limits.LISTED_MAX


class Typed(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What someone does on the page, as a text."""

    id: Annotated[str, Meta(min_length=8, max_length=100)]
    """Made by the page: sent again, it is the same text."""
    text: Annotated[str, Meta(max_length=limits.TEXT_CHARS_MAX)]


class Heard(msgspec.Struct, frozen=True):
    """A reply to a player."""

    text: str
    id: str
    at_ms: int


class Waiting(msgspec.Struct):
    """A game that is on."""

    nick: str
    """Of the opponent."""
    mine: str | None
    """What one has thrown oneself; None: it is one's turn."""
    due_ms: int | None


class Me(msgspec.Struct):
    """All that a player sees."""

    user: str
    nick: str
    room: str
    """Tells when there is news."""
    games: list[Waiting]
    score: Score
    heard: list[Heard]
    """The last of it."""
    now_ms: int


class Web(Provider):
    """All players at the page, each by the name that their token says."""

    name: ClassVar[str] = "web"
    asks: ClassVar[bool] = True

    def address(self, sender: str) -> str:
        if not 0 < len(sender.encode()) <= _USER_BYTES_MAX:
            raise BadInput(f"a player's name has 1 to {_USER_BYTES_MAX} bytes", code="bad_name")
        return _address(sender)

    def routes(self) -> list[Route]:
        return [
            *_PAGES.routes(_FILES, "A page to play on"),
            Route("POST", "/play/texts", self.receive, "A player does something", public=True),
            Route("GET", "/play/me", self.me, "What a player sees", public=True),
        ]

    async def receive(self, site: Any, request: Request) -> Response:
        """Take in what a player does; again, it does nothing more."""
        user = _user(request)
        typed = parse(await request.body(limits.REQUEST_BYTES_MAX), Typed)
        # Ids are made by pages: nobody can use up another one's.
        receipt = await self.game.accept(self.name, keys.join(user, typed.id), user, typed.text)
        return Response.of({"duplicate": receipt.duplicate})

    async def me(self, site: Any, request: Request) -> Response:
        user = _user(request)
        return Response.of(await self.game.app.run(lambda tx: self._me(tx, user)))

    async def send(self, id_: str, reply: Reply) -> dict[str, Any]:
        await self.game.app.run(lambda tx: self._tell(tx, id_, reply))
        return {"shown": True}

    async def ask(self, id_: str, reply: Reply, created_ms: int) -> dict[str, Any]:
        if await self.game.app.run(lambda tx: tx.get(_id_key(reply.to, id_))) is None:
            raise NotDone("the page does not show it")
        return {"shown": True}

    async def _tell(self, tx: Transaction, id_: str, reply: Reply) -> None:
        """Let a player hear a reply, once for its id."""
        if await tx.get(_id_key(reply.to, id_)) is not None:
            return
        head = (_partition(reply.to), _HEAD)
        number = (await tx.get(head) or 0) + 1
        until_ms = tx.now_ms + limits.SHOWN_MS
        tx.put(head, number)
        key = _partition(reply.to), keys.join("heard", number)
        tx.put(key, Heard(reply.text, id_, tx.now_ms), expires_at_ms=until_ms)
        tx.put(_id_key(reply.to, id_), number, expires_at_ms=until_ms)
        await self._ring(tx, reply.to, number)

    async def _ring(self, tx: Transaction, address: str, number: int) -> None:
        rooms = self.game.app.rooms
        try:
            await rooms.info(tx, room_of(address))
        except NoSuchRoom:
            await rooms.create(tx, room_of(address), keep=1)
        await rooms.map_set(tx, room_of(address), "news", "number", number)

    async def _me(self, tx: Transaction, user: str) -> Me:
        address = self.address(user)
        player = await tx.get(player_key(address), Player)
        score = None if player is None else await tx.get((scores_of(player.id), ALL), Score)
        start, end = keys.below("heard")
        rows = await tx.scan(
            _partition(address), Heard, start=start, end=end, limit=_SHOWN, reverse=True
        )
        if await tx.get((_partition(address), _HEAD)) is None:
            tx.put((_partition(address), _HEAD), 0)
            await self._ring(tx, address, 0)  # so that there is a room to wait in
        return Me(
            user=user,
            nick="" if player is None else player.nick,
            room=room_of(address),
            games=[] if player is None else await self._games(tx, player),
            score=score or Score(),
            heard=[row.value for row in reversed(rows)],
            now_ms=tx.now_ms,
        )

    async def _games(self, tx: Transaction, me: Player) -> list[Waiting]:
        threw = await tx.scan(thrown_by(me.id), Thrown, limit=_SHOWN)
        waits = await tx.scan(awaiting(me.id), Awaited, limit=_SHOWN)
        found = [(row.key[1], row.value.at) for row in threw]
        found += [(row.key[1], row.value.nick) for row in waits]
        games = []
        for id_, nick in found:
            match = await self.game.duels.at(tx, me.id, id_)
            if match is not None:
                games.append(Waiting(nick, thrown(match, me.id), match.due_ms))
        return games


def _address(user: str) -> str:
    return f"@{user}"  # no phone number begins like this


def room_of(address: str) -> str:
    """The room that tells a player of news."""
    return f"rps:{address}"


def grants_for(user: str, issuer: str = "") -> list[Grant]:
    """The grants of a player's token: the game, and the room that tells of news.

    Args:
        user: The user of the token.
        issuer: The `label` of the issuer in the server's settings.
    """
    player = Caller("user", issuer, user).user
    return [Grant("play", RockPaperScissors.name), Grant("read", room_of(_address(player)))]


def _user(request: Request) -> str:
    """Whose token a request has. Raises `no_credentials`, `not_allowed`."""
    server = request.scope.get("onceward")
    if server is None:
        raise BadInput("the page is served by Onceward's own server", code="no_credentials")
    if server.auth.dev:
        insist_local(request)
    scheme, _, token = (request.header(b"authorization") or "").partition(" ")
    caller = server.visitor(token.strip() if scheme.lower() == "bearer" else "")
    # Who might send to the queue of texts could write there who has sent them.
    caller.insist("play", RockPaperScissors.name)
    name: str = caller.user
    return name


def _partition(address: str) -> str:
    return keys.join("rps-web", address)


def _id_key(address: str, id_: str) -> keys.Key:
    return _partition(address), keys.join("id", id_)
