"""Signing in at the console: a browser gets a session for a link that counts once, or for a key."""

from typing import TYPE_CHECKING

import msgspec

from onceward.callers import Caller
from onceward.errors import BadInput
from onceward.web.bodies import parse
from onceward.web.grants import Grants
from onceward.web.http import Request, Response
from onceward.web.routes import Route
from onceward.web.sessions import HEADER, Session, insist_own_page

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
    grants: list[GrantView]
    everything: bool
    """Whether the caller has the scope `all`."""
    until_ms: int
    token: str
    """To be repeated in the header Onceward-Session: the cookie counts only with it."""
    dev: bool
    """Whether the server is in dev mode, and asks nobody but browsers."""


class SignedOut(msgspec.Struct):
    """That the cookie is taken away."""

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
        session = server.sessions.enter(asked.link)
    elif server.auth.dev:
        raise BadInput(
            "in dev mode there are no keys: `onceward console` makes a link", code="no_credentials"
        )
    else:
        bearer = f"Bearer {asked.token.strip()}"
        caller = server.auth.caller(bearer, server.app.store.clock.now_ms())
        session = server.sessions.open(caller, server.auth.credential(bearer))
    return _answer(server, request, session)


async def get(server: "Server", request: Request) -> Response:
    insist_own_page(request)
    session = server.sessions.find(request)
    if session is None:
        raise BadInput("nobody is signed in", code="no_credentials", dev=server.auth.dev)
    return Response.of(_view(server, session))


async def leave(server: "Server", request: Request) -> Response:
    insist_own_page(request)
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


def _answer(server: "Server", request: Request, session: Session) -> Response:
    response = Response.of(_view(server, session))
    response.headers.append(server.sessions.cookie(session, request))
    return response


def _view(server: "Server", session: Session) -> SessionView:
    caller = server.sessions.holder(session)
    grants = Grants() if caller is None else caller.grants
    return SessionView(
        Caller.parse(session.caller).name,
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
    ),
    Route("GET", "/v1/session", get, "Who is signed in", gives=SessionView),
    Route("DELETE", "/v1/session", leave, "Sign out", gives=SignedOut),
    Route("POST", "/v1/session/link", link, "A link that signs in once", gives=Link),
]
