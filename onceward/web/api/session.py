"""HTTP functions for console sign-in with a one-time link or an API key."""

from typing import TYPE_CHECKING

from msgspec import UNSET

from onceward import limits
from onceward.api import sessions as api
from onceward.callers import Caller
from onceward.errors import BadInput
from onceward.ids import LENGTH
from onceward.strict_json import parse
from onceward.web.calls import Call, binder
from onceward.web.grants import Grants
from onceward.web.http import Request, Response
from onceward.web.routes import Route
from onceward.web.sessions import HEADER, Session, insist_own_page

if TYPE_CHECKING:
    from onceward.web.server import Server


ROUTES: list[Route] = []
answers = binder(ROUTES)


async def enter(server: "Server", request: Request) -> Response:
    insist_own_page(request)
    if server.auth.dev:
        server.caller(request)  # dev mode is only for callers on this machine
    asked = parse(await request.body(), api.SignIn)
    if bool(asked.link) == bool(asked.token):
        raise BadInput("sign in with either a link or a token; send one of them")
    if asked.link:
        session = await server.sessions.enter(asked.link, request)
    elif server.auth.dev:
        raise BadInput(
            "in dev mode there are no keys; create a sign-in link with `onceward console`",
            code="no_credentials",
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
        raise BadInput(
            "there is no session; sign in first", code="no_credentials", dev=server.auth.dev
        )
    holder = server.sessions.holder(session)
    if holder is not None:
        server.count(request, holder)
    return Response.of(_view(server, session))


async def leave(server: "Server", request: Request) -> Response:
    insist_own_page(request)
    session = await server.sessions.find(request)
    if session is not None:
        await server.sessions.revoke(session.caller, session.id)
    response = Response.of(api.SignedOut(True))
    response.headers.append(server.sessions.cookie(None, request))
    return response


@answers(api.LINK)
async def link(call: Call) -> api.SignInLink:
    """Create a sign-in link. Only for terminals, since a page could read the response.

    A session cannot create one, because a session ends with its key and that of the link would not.
    """
    server, request = call.server, call.request
    if any(request.header(name) is not None for name in (b"origin", b"sec-fetch-site", HEADER)):
        raise BadInput(
            "pages cannot create sign-in links; use `onceward console` in a terminal",
            code="no_credentials",
        )
    credential = server.auth.credential(request.header(b"authorization"))
    return api.SignInLink(server.sessions.link(call.caller, credential))


@answers(api.LIST)
async def list_(call: Call, asked: api.FindSessions) -> api.SessionPage:
    if len(asked.after.encode()) > limits.SORT_BYTES_MAX or "\x00" in asked.after:
        raise BadInput(
            f"`after` is {asked.after[:100]!a}, not a cursor; use the member "
            "`next` of the last page",
            code="bad_parameter",
        )
    if asked.everyone:
        call.caller.insist_all()
    sessions, whose = call.server.sessions, None if asked.everyone else call.caller.id
    found, next_ = await sessions.listed(whose, asked.after)
    own = await sessions.find(call.request)
    return api.SessionPage(found, None if own is None else own.id, next_ or None)


@answers(api.REVOKE)
async def revoke(call: Call, id_: str, asked: api.WhoseSessions) -> api.RevokedSessions:
    whose, count = _whose(call, asked), 0
    if 0 < len(id_) <= LENGTH:
        count = await call.server.sessions.revoke(whose, id_)
    if not count:
        raise BadInput(
            f"session {id_[:100]!r} not found; see the list of sessions", code="no_such_session"
        )
    return api.RevokedSessions(count)


@answers(api.REVOKE_ALL)
async def revoke_all(call: Call, asked: api.WhoseSessions) -> api.RevokedSessions:
    return api.RevokedSessions(await call.server.sessions.revoke(_whose(call, asked)))


def _whose(call: Call, asked: api.WhoseSessions) -> str:
    """The caller whose sessions to revoke: the caller itself or, with the scope `all`, any
    caller."""
    whose = call.caller.id if asked.caller is UNSET else asked.caller
    if whose != call.caller.id:
        call.caller.insist_all()
        if not 0 < len(whose.encode()) <= limits.SORT_BYTES_MAX // 2:
            raise BadInput(
                f"{whose[:100]!r} is not the id of a caller; use one such as key:billing or "
                "user:ann",
                code="bad_parameter",
            )
    return whose


def _answer(server: "Server", request: Request, session: Session) -> Response:
    response = Response.of(_view(server, session))
    response.headers.append(server.sessions.cookie(session, request))
    return response


def _view(server: "Server", session: Session) -> api.Session:
    caller = server.sessions.holder(session)
    grants = Grants() if caller is None else caller.grants
    return api.Session(
        Caller.parse(session.caller).name,
        session.caller,
        [
            api.SessionGrant(action, name)
            for action, name in sorted(grants.named)
            if grants.cover(action, name)
        ]
        + [api.SessionGrant(action, pattern=names) for action, names in grants.patterns],
        grants.everything,
        session.until_ms,
        session.token,
        server.auth.dev,
    )


# These serve browsers that have no credentials yet, or are about to drop them.
ROUTES += [
    Route.of(api.ENTER, enter),
    Route.of(api.GET, get),
    Route.of(api.LEAVE, leave),
]
