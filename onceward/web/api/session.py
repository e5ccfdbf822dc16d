"""Signing in at the console: a browser gets a session for a link that counts once, or for a key."""

from typing import TYPE_CHECKING

import msgspec

from onceward import limits
from onceward.callers import Caller
from onceward.errors import BadInput
from onceward.ids import LENGTH
from onceward.web.bodies import parse
from onceward.web.grants import Grants
from onceward.web.http import Request, Response, truth
from onceward.web.routes import Route
from onceward.web.sessions import HEADER, ListedSession, Session, insist_own_page

if TYPE_CHECKING:
    from onceward.web.server import Server


class SignIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Who signs in: by a link, or by an API key or token."""

    link: str = ""
    token: str = ""


class GrantView(msgspec.Struct, omit_defaults=True):
    """An action, and the name or the pattern of names that it is allowed for."""

    action: str
    name: str = ""
    """Literal."""
    pattern: str = ""


class SessionView(msgspec.Struct):
    """Who is signed in."""

    name: str
    caller: str
    """The id of the caller, as in lists of timers and endpoints."""
    grants: list[GrantView]
    everything: bool
    """Whether the caller has the scope `all`."""
    until_ms: int
    token: str
    """To be repeated in the header Onceward-Session: the cookie counts only with it."""
    dev: bool
    """Whether the server is in dev mode, and asks nobody but browsers."""


class SessionPage(msgspec.Struct):
    """Sessions of the console, the oldest of each caller first."""

    sessions: list[ListedSession]
    current: str | None
    """The id of the session by which this is asked."""
    next: str | None
    """For the parameter after of the next request; None: there are no more."""


class SessionsRevoked(msgspec.Struct):
    """How many sessions have ended."""

    sessions: int


class SignedOut(msgspec.Struct):
    """That the session has ended, and the cookie is taken away."""

    signed_out: bool


class Link(msgspec.Struct):
    """What signs in once, as whoever has asked for it."""

    link: str
    """For the address of the console, behind `#enter=`."""


async def enter(server: "Server", request: Request) -> Response:
    insist_own_page(request)
    if server.auth.dev:
        server.caller(request)  # who is on another machine has no business here
    asked = parse(await request.body(), SignIn)
    if bool(asked.link) == bool(asked.token):
        raise BadInput("sign in by a link or by a token, one of them")
    if asked.link:
        session = await server.sessions.enter(asked.link, request)
    elif server.auth.dev:
        raise BadInput(
            "in dev mode there are no keys: `onceward console` makes a link", code="no_credentials"
        )
    else:
        bearer = f"Bearer {asked.token.strip()}"
        caller = server.auth.caller(bearer, server.app.store.clock.now_ms())
        server.count(request, caller)
        credential = server.auth.credential(bearer)
        session = await server.sessions.open(caller, credential, request)
    return _answer(server, request, session)


async def get(server: "Server", request: Request) -> Response:
    insist_own_page(request)
    session = await server.sessions.find(request)
    if session is None:
        raise BadInput("nobody is signed in", code="no_credentials", dev=server.auth.dev)
    holder = server.sessions.holder(session)
    if holder is not None:
        server.count(request, holder)
    return Response.of(_view(server, session))


async def leave(server: "Server", request: Request) -> Response:
    insist_own_page(request)
    session = await server.sessions.find(request)
    if session is not None:
        await server.sessions.revoke(session.caller, session.id)
    response = Response.of(SignedOut(True))
    response.headers.append(server.sessions.cookie(None, request))
    return response


async def link(server: "Server", request: Request) -> Response:
    """For those at a terminal: what a browser could ask for would be no secret from its pages. Nor
    for who is signed in: that session ends with its key, and one by the link would not."""
    caller = server.caller(request)
    if any(request.header(name) is not None for name in (b"origin", b"sec-fetch-site", HEADER)):
        raise BadInput("links are not for pages: ask from a terminal", code="no_credentials")
    credential = server.auth.credential(request.header(b"authorization"))
    return Response.of(Link(server.sessions.link(caller, credential)))


async def list_(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    query = request.query(["everyone", "after"])
    after = query.get("after", "")
    if len(after.encode()) > limits.SORT_BYTES_MAX or "\x00" in after:
        raise BadInput("after is the member next of the last answer", code="bad_parameter")
    everyone = truth("everyone", query.get("everyone", "false"))
    if everyone:
        caller.insist_all()
    found, next_ = await server.sessions.listed(None if everyone else caller.id, after)
    own = await server.sessions.find(request)
    return Response.of(SessionPage(found, None if own is None else own.id, next_ or None))


async def revoke(server: "Server", request: Request) -> Response:
    whose, id_ = _whose(server, request), request.parameters["id"]
    count = 0
    if 0 < len(id_) <= LENGTH:
        count = await server.sessions.revoke(whose, id_)
    if not count:
        raise BadInput("there is no such session", code="no_such_session")
    return Response.of(SessionsRevoked(count))


async def revoke_all(server: "Server", request: Request) -> Response:
    return Response.of(SessionsRevoked(await server.sessions.revoke(_whose(server, request))))


def _whose(server: "Server", request: Request) -> str:
    """Whose sessions are meant: one's own, or for who may do everything those of any caller."""
    caller = server.caller(request)
    whose = request.query(["caller"]).get("caller", caller.id)
    if whose != caller.id:
        caller.insist_all()
        if not 0 < len(whose.encode()) <= limits.SORT_BYTES_MAX // 2:
            raise BadInput("caller is the id of a caller", code="bad_parameter")
    return whose


def _answer(server: "Server", request: Request, session: Session) -> Response:
    response = Response.of(_view(server, session))
    response.headers.append(server.sessions.cookie(session, request))
    return response


def _view(server: "Server", session: Session) -> SessionView:
    caller = server.sessions.holder(session)
    grants = Grants() if caller is None else caller.grants
    return SessionView(
        Caller.parse(session.caller).name,
        session.caller,
        [
            GrantView(action, name)
            for action, name in sorted(grants.named)
            if grants.cover(action, name)
        ]
        + [GrantView(action, pattern=names) for action, names in grants.patterns],
        grants.everything,
        session.until_ms,
        session.token,
        server.auth.dev,
    )


ROUTES = [
    Route(
        "POST",
        "/v1/session",
        enter,
        "Sign in at the console",
        takes=SignIn,
        gives=SessionView,
        signs_in=True,
    ),
    Route("GET", "/v1/session", get, "Who is signed in", gives=SessionView),
    Route("DELETE", "/v1/session", leave, "Sign out", gives=SignedOut),
    Route(
        "GET",
        "/v1/sessions",
        list_,
        "One's sessions at the console, or everyone's",
        gives=SessionPage,
        query=("everyone", "after"),
    ),
    Route(
        "DELETE",
        "/v1/sessions",
        revoke_all,
        "End all of one's sessions, or those of a caller",
        gives=SessionsRevoked,
        query=("caller",),
    ),
    Route(
        "DELETE",
        "/v1/sessions/{id}",
        revoke,
        "End a session",
        gives=SessionsRevoked,
        problems=("no_such_session",),
        query=("caller",),
    ),
    Route("POST", "/v1/session/link", link, "A link that signs in once", gives=Link),
]
