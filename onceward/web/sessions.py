"""Sessions: how a browser shows who uses it, without keeping a key.

Who signs in at the console, by a link that counts once or by a key, gets a cookie: the caller's
name and what its token claims, signed with the server key, so that all nodes take it
and a restart ends no session. No script can read the cookie. It counts only together with a
header that repeats a token of the session: pages of other origins cannot set that header, and
cannot know the token, though a browser sends them the cookie's way (all ports of a machine share
their cookies).
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from onceward import limits
from onceward.app import App
from onceward.callers import Caller
from onceward.errors import BadInput
from onceward.web.auth import Access
from onceward.web.grants import Claimed, Grants
from onceward.web.http import Request

HEADER = b"onceward-session"
"""In which a page repeats the token of its session."""
_PURPOSE = "session"


class Session(msgspec.Struct, frozen=True):
    """What a cookie says."""

    caller: str
    """The caller's id."""
    claimed: Claimed
    """What its token claims; of who has a key, the key says what its holder may do."""
    until_ms: int
    token: str
    """Which the page repeats in a header."""
    credential: str
    """The digest of the key by which its holder has signed in, or by which its token was signed;
    with that key, the session ends."""


class Sessions:
    """Those of one database."""

    def __init__(self, app: App, holder: Callable[[str, Access], Access | None]) -> None:
        """`holder`: what a caller may do by now who has signed in with a credential; None if that
        counts no more."""
        self._app = app
        self._holder = holder
        self._links: dict[str, tuple[Access, str, int]] = {}

    def link(self, caller: Access, credential: str) -> str:
        """A token by which somebody may sign in as this caller, once and soon."""
        now_ms = self._app.store.clock.now_ms()
        self._links = {token: one for token, one in self._links.items() if one[2] > now_ms}
        own = [token for token, one in self._links.items() if one[0].id == caller.id]
        if len(own) >= limits.LINKS_EACH_MAX or len(self._links) >= limits.LINKS_MAX:
            del self._links[next(iter(own or self._links))]
        token = self._app.store.ids.token()
        self._links[token] = (caller, credential, now_ms + limits.LINK_MS)
        return token

    def enter(self, link: str) -> Session:
        """Sign in by a link, which then counts no more. Raises `no_credentials`."""
        caller, credential, until_ms = self._links.pop(link, (None, "", 0))
        if caller is None or until_ms <= self._app.store.clock.now_ms():
            raise BadInput(
                "this link was used already, or is too old: `onceward console` makes a new one",
                code="no_credentials",
            )
        return self.open(caller, credential)

    def open(self, caller: Access, credential: str) -> Session:
        """A new session."""
        until_ms = self._app.store.clock.now_ms() + limits.SESSION_MS
        if caller.until_ms is not None:
            until_ms = min(until_ms, caller.until_ms)
        token = self._app.store.ids.token(16)
        return Session(caller.id, caller.claimed, until_ms, token, credential)

    def find(self, request: Request) -> Session | None:
        """The session that the cookie of a request is of, if it counts."""
        cookie = _cookies(request.header(b"cookie") or "").get(name_of(request), "")
        text, _, mark = cookie.partition(".")
        if not text or not self._app.store.server_keys.verify(_PURPOSE, text, mark):
            return None
        try:
            session = msgspec.json.decode(urlsafe_b64decode(text), type=Session)
        except (ValueError, msgspec.DecodeError):
            return None
        if session.until_ms <= self._app.store.clock.now_ms():
            return None
        return None if self.holder(session) is None else session

    def holder(self, session: Session) -> Access | None:
        """Who has a session, with what they may do by now; None if it counts no more."""
        caller = Caller.parse(session.caller)
        access = Access(caller, Grants(), session.until_ms, session.claimed)
        return self._holder(session.credential, access)

    def caller(self, request: Request) -> Access | None:
        """Who makes a request by a session; None if it does not say that it is made by one.
        Raises `no_credentials` if that does not count."""
        token = request.header(HEADER)
        if token is None:
            return None
        session = self.find(request)
        if session is None or not hmac.compare_digest(token.encode(), session.token.encode()):
            raise BadInput("the session is over: sign in again", code="no_credentials")
        insist_own_page(request)
        caller = self.holder(session)
        assert caller is not None  # or it would not have been found
        return replace(caller, until_ms=session.until_ms)

    def cookie(self, session: Session | None, request: Request) -> tuple[bytes, bytes]:
        """The header that gives a browser its cookie, or takes it away."""
        text, left_s = "", 0
        if session is not None:
            text = urlsafe_b64encode(msgspec.json.encode(session)).decode()
            text += "." + self._app.store.server_keys.sign(_PURPOSE, text)
            if len(text) + len(name_of(request)) > limits.COOKIE_BYTES_MAX:
                raise BadInput(
                    "the token has too many grants for a session; use one with fewer",
                    code="value_too_large",
                )
            left_s = (session.until_ms - self._app.store.clock.now_ms()) // 1_000
        root = request.scope.get("root_path", "").rstrip("/") + "/"
        # Over plain HTTP, as on one's own machine, a browser would not keep a secure one.
        secure = "; Secure" if (request.header(b"origin") or "").startswith("https:") else ""
        value = (
            f"{name_of(request)}={text}; Path={root}; Max-Age={left_s}; HttpOnly; "
            f"SameSite=Strict{secure}"
        )
        return b"set-cookie", value.encode("latin-1", errors="replace")


def insist_own_page(request: Request) -> None:
    """Raise `no_credentials` for a request that a page of another origin makes."""
    origin, host = request.header(b"origin"), request.header(b"host")
    if origin is not None and origin.partition("://")[2] != host:
        raise BadInput("this is for the console's own pages", code="no_credentials")
    if request.header(b"sec-fetch-site") in ("cross-site", "same-site"):
        raise BadInput("this is for the console's own pages", code="no_credentials")


def name_of(request: Request) -> str:
    """Of the cookie: with the port, since servers on one machine share their cookies."""
    port = (request.header(b"host") or "").rpartition(":")[2]
    return f"onceward_{port}" if port.isascii() and port.isdecimal() else "onceward"


def _cookies(header: str) -> dict[str, Any]:
    pairs = [part.strip().partition("=") for part in header.split(";")]
    return {name: value for name, _, value in pairs}
