"""Operations on console sessions."""

import msgspec
from msgspec import UNSET, UnsetType

from onceward.api.operation import Body, Operation, Query


class SignIn(Body):
    """Who signs in: by a link, or by an API key or token."""

    link: str = ""
    token: str = ""


class SessionGrant(msgspec.Struct, omit_defaults=True):
    """An action, and the name or the pattern of names that it is allowed for."""

    action: str
    name: str = ""
    """A literal name."""
    pattern: str = ""


class Session(msgspec.Struct):
    """The session of a signed-in person."""

    name: str
    caller: str
    """The id of the caller, as in lists of timers and endpoints."""
    grants: list[SessionGrant]
    everything: bool
    """Whether the caller has the scope `all`."""
    until_ms: int
    token: str
    """Repeat it in the header Onceward-Session: the cookie is valid only with it."""
    dev: bool
    """Whether the server is in development mode."""


class SessionSummary(msgspec.Struct):
    """A session in a list."""

    id: str
    caller: str
    created_ms: int
    until_ms: int
    agent: str


class FindSessions(Query):
    """Which sessions to list."""

    everyone: bool = False
    """Whether to list the sessions of all callers."""
    after: str = ""
    """The member `next` of the last page."""


class SessionPage(msgspec.Struct):
    """Sessions of the console, the oldest of each caller first."""

    sessions: list[SessionSummary]
    current: str | None
    """The id of the session of this request."""
    next: str | None
    """For the parameter `after` of the next request; None on the last page."""


class WhoseSessions(Query):
    """Whose sessions to revoke."""

    caller: str | UnsetType = UNSET
    """The id of a caller; by default, the caller of the request."""


class RevokedSessions(msgspec.Struct):
    """The number of revoked sessions."""

    sessions: int


class SignedOut(msgspec.Struct):
    """The session has ended, and the cookie is removed."""

    signed_out: bool


class SignInLink(msgspec.Struct):
    """A link that signs in once."""

    link: str
    """For the address of the console, after `#enter=`."""


ENTER = Operation(
    name="session.sign_in",
    method="POST",
    path="/v1/session",
    summary="Sign in to the console",
    body=SignIn,
    response=Session,
    kind="page",
    signs_in=True,
)

GET = Operation(
    name="session.get",
    method="GET",
    path="/v1/session",
    summary="Show who is signed in",
    response=Session,
    kind="page",
)

LEAVE = Operation(
    name="session.sign_out",
    method="DELETE",
    path="/v1/session",
    summary="Sign out of the console",
    description="It succeeds without a session. Pages of other origins are rejected.",
    response=SignedOut,
    errors=("no_credentials",),
    kind="page",
    public=True,
)

LINK = Operation(
    name="sessions.create_link",
    method="POST",
    path="/v1/session/link",
    summary="Create a link that signs in once",
    response=SignInLink,
    returns="link",
)

LIST = Operation(
    name="sessions.list",
    method="GET",
    path="/v1/sessions",
    summary="List sessions at the console",
    scope="your own | all",
    query=FindSessions,
    response=SessionPage,
)

REVOKE = Operation(
    name="sessions.revoke",
    method="DELETE",
    path="/v1/sessions/{id}",
    summary="Revoke a session",
    scope="your own | all",
    query=WhoseSessions,
    response=RevokedSessions,
    errors=("no_such_session",),
    returns="sessions",
)

REVOKE_ALL = Operation(
    name="sessions.revoke_all",
    method="DELETE",
    path="/v1/sessions",
    summary="Revoke all sessions of a caller",
    scope="your own | all",
    query=WhoseSessions,
    response=RevokedSessions,
    returns="sessions",
)
