"""Browser sessions: signed cookies in place of API keys.

Signing in at the console, with a one-time link or a key, sets a cookie. It has the caller's name
and claims, signed with the server key, so that all nodes accept it and it survives restarts.
Scripts cannot read the cookie. A request must also repeat a token of the session in a header,
against cross-site requests. Pages of other origins cannot set the header or know the token,
although browsers share cookies between all ports of a host.

Each session has a record, which is checked with every request. Signing out and revoking remove the
record, which ends the session on all nodes.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from onceward import keys, limits
from onceward.api.sessions import SessionSummary
from onceward.app import App
from onceward.callers import Caller
from onceward.errors import BadInput
from onceward.keys import Key
from onceward.store.transaction import Row, Transaction
from onceward.web.auth import Access
from onceward.web.grants import Claimed, Grants
from onceward.web.http import Request, is_local
from onceward.web.records import SESSIONS, StoredSession

HEADER = b"onceward-session"
"""The header in which a page repeats the token of its session."""
_PURPOSE = "session"
_FOUND = "onceward.session"
"""The key of the checked session in the scope of a request; None if there is no valid one."""
_SECURE = "__Host-"
"""The prefix of cookies that browsers accept only over HTTPS and only from this host."""


class Session(msgspec.Struct, frozen=True):
    """The contents of a cookie."""

    id: str
    caller: str
    """The caller's id."""
    claimed: Claimed
    """The claims of its token; empty for an API key, whose scopes apply."""
    until_ms: int
    token: str
    """The token that the page repeats in a header."""
    credential: str
    """The digest of the key used to sign in, or of the issuer of the token. The session ends with
    it."""
    secure: bool
    """Whether it was opened over HTTPS, which decides the name of its cookie."""


class Sessions:
    """The sessions of one database."""

    def __init__(self, app: App, holder: Callable[[str, Access], Access | None]) -> None:
        """`holder` returns the current permissions of a caller with a credential; None if it was
        revoked."""
        self._app = app
        self._holder = holder
        self._links: dict[str, tuple[Access, str, int]] = {}

    def link(self, caller: Access, credential: str) -> str:
        """Create a short-lived token that signs in as this caller once."""
        now_ms = self._app.store.clock.now_ms()
        self._links = {token: one for token, one in self._links.items() if one[2] > now_ms}
        own = [token for token, one in self._links.items() if one[0].id == caller.id]
        if len(own) >= limits.LINKS_EACH_MAX or len(self._links) >= limits.LINKS_MAX:
            del self._links[next(iter(own or self._links))]
        token = self._app.store.ids.token()
        self._links[token] = (caller, credential, now_ms + limits.LINK_MS)
        return token

    async def enter(self, link: str, request: Request) -> Session:
        """Sign in with a one-time link. Raises `no_credentials`."""
        caller, credential, until_ms = self._links.pop(link, (None, "", 0))
        if caller is None or until_ms <= self._app.store.clock.now_ms():
            raise BadInput(
                "this link was already used or has expired; create another with `onceward console`",
                code="no_credentials",
            )
        return await self.open(caller, credential, request)

    async def open(self, caller: Access, credential: str, request: Request) -> Session:
        """Open a session. Beyond the limit of a caller, the oldest session ends."""
        until_ms = self._app.store.clock.now_ms() + limits.SESSION_MS
        if caller.until_ms is not None:
            until_ms = min(until_ms, caller.until_ms)
        ids = self._app.store.ids
        secure = _is_secure(request)
        session = Session(
            ids.new(), caller.id, caller.claimed, until_ms, ids.token(16), credential, secure
        )
        self.cookie(session, request)  # raises before the record is written
        agent = (request.header(b"user-agent") or "")[: limits.AGENT_CHARS_MAX]
        agent = "".join(char for char in agent if char.isprintable())

        async def fn(tx: Transaction) -> None:
            own = await self._own(tx, caller.id)
            for key, _ in own[: max(0, len(own) - limits.SESSIONS_EACH_MAX + 1)]:
                tx.delete(key)
            stored = StoredSession(tx.now_ms, until_ms, agent)
            tx.put(_key(caller.id, session.id), stored, expires_at_ms=until_ms)

        await self._app.store.run(fn)
        return session

    async def listed(self, whose: str | None, after: str = "") -> tuple[list[SessionSummary], str]:
        """List the sessions of a caller, or of all callers, the oldest first; with the cursor of
        the next page."""

        async def fn(tx: Transaction) -> list[Row[StoredSession]]:
            if whose is not None:
                return [Row(key, value) for key, value in await self._own(tx, whose)]
            start = keys.after(after) if after else ""
            return await tx.scan(SESSIONS, StoredSession, start=start, limit=limits.LIST_MAX)

        rows = await self._app.store.run(fn)
        found = []
        for row in rows:
            caller, id_ = keys.split(row.key[1])
            one = row.value
            found.append(SessionSummary(id_, caller, one.created_ms, one.until_ms, one.agent))
        more = whose is None and len(rows) == limits.LIST_MAX
        return found, rows[-1].key[1] if more else ""

    async def revoke(self, whose: str, id_: str | None = None) -> int:
        """End a session of a caller, or all of them, on all nodes. Returns their number.
        Idempotent."""

        async def fn(tx: Transaction) -> int:
            if id_ is None:
                own = [key for key, _ in await self._own(tx, whose)]
            else:
                key = _key(whose, id_)
                own = [] if await tx.get(key, StoredSession) is None else [key]
            for key in own:
                tx.delete(key)
            return len(own)

        return await self._app.store.run(fn)

    async def _own(self, tx: Transaction, whose: str) -> list[tuple[Key, StoredSession]]:
        start, end = keys.below(whose)
        # Concurrent sign-ins may exceed the limit by a few; one commit ends them all.
        most = limits.COMMIT_WRITES_MAX - 2
        rows = await tx.scan(SESSIONS, StoredSession, start=start, end=end, limit=most)
        return [(row.key, row.value) for row in rows]

    async def find(self, request: Request) -> Session | None:
        """Return the valid session of a request's cookie, or None. Cached in the request."""
        if _FOUND not in request.scope:
            session = self._shown(request)
            if session is not None:
                now_ms = self._app.store.clock.now_ms()
                key = _key(session.caller, session.id)
                [record] = await self._app.store.engine.get([key], now_ms)
                session = None if record is None else session
            request.scope[_FOUND] = session
        found: Session | None = request.scope[_FOUND]
        return found

    def _shown(self, request: Request) -> Session | None:
        """The session in a cookie, if it is signed and has not expired."""
        cookies = _cookies(request.header(b"cookie") or "")
        name = name_of(request, secure=True)
        secure = name in cookies
        if not secure and _is_over_https(request):
            return None  # any other host of the domain could have set that cookie
        text, _, mark = cookies.get(name if secure else name_of(request), "").partition(".")
        if not text or not self._app.store.server_keys.verify(_PURPOSE, text, mark):
            return None
        try:
            session = msgspec.json.decode(urlsafe_b64decode(text), type=Session)
        except (ValueError, msgspec.DecodeError):
            return None
        if session.until_ms <= self._app.store.clock.now_ms() or session.secure is not secure:
            return None
        return None if self.holder(session) is None else session

    def is_signed(self, request: Request) -> bool:
        """Whether a request has a signed session with its token. `find` checks whether it is still
        valid."""
        token = request.header(HEADER)
        session = None if token is None else self._shown(request)
        return session is not None and _repeats(token or "", session)

    def holder(self, session: Session) -> Access | None:
        """The holder of a session with current permissions; None if it is not valid."""
        caller = Caller.parse(session.caller)
        access = Access(caller, Grants(), session.until_ms, session.claimed)
        return self._holder(session.credential, access)

    def caller(self, request: Request) -> Access | None:
        """The caller of a request by its session; None without a session header.

        `find` must have checked it before. Raises `no_credentials` if the session is not valid.
        """
        token = request.header(HEADER)
        if token is None:
            return None
        session: Session | None = request.scope.get(_FOUND)
        if session is None or not _repeats(token, session):
            raise BadInput("the session has ended; sign in again", code="no_credentials")
        insist_own_page(request)
        caller = self.holder(session)
        assert caller is not None  # guaranteed by `find`
        return replace(caller, until_ms=session.until_ms)

    def cookie(self, session: Session | None, request: Request) -> tuple[bytes, bytes]:
        """The header that sets or removes the cookie of a browser."""
        text, left_s = "", 0
        # Browsers do not store secure cookies over plain HTTP, as on localhost.
        secure = _is_secure(request)
        name = name_of(request, secure=secure)
        if session is not None:
            text = urlsafe_b64encode(msgspec.json.encode(session)).decode()
            text += "." + self._app.store.server_keys.sign(_PURPOSE, text)
            if len(text) + len(name) > limits.COOKIE_BYTES_MAX:
                raise BadInput(
                    f"the grants of the token make a session of {len(text)} characters, "
                    f"and at most {limits.COOKIE_BYTES_MAX} fit; use a token with fewer",
                    code="value_too_large",
                )
            left_s = (session.until_ms - self._app.store.clock.now_ms()) // 1_000
        path = "/" if secure else _root(request) + "/"
        value = f"{name}={text}; Path={path}; Max-Age={left_s}; HttpOnly; SameSite=Strict"
        if secure:
            value += "; Secure"
        return b"set-cookie", value.encode("latin-1", errors="replace")


def insist_own_page(request: Request) -> None:
    """Raise `no_credentials` for a request from a page of another origin."""
    origin, host = request.header(b"origin"), request.header(b"host")
    if origin is not None and origin.partition("://")[2] != host:
        raise BadInput(
            "only pages of the console can do this; open the console of this server",
            code="no_credentials",
        )
    if request.header(b"sec-fetch-site") in ("cross-site", "same-site"):
        raise BadInput(
            "only pages of the console can do this; open the console of this server",
            code="no_credentials",
        )


def name_of(request: Request, *, secure: bool = False) -> str:
    """The name of the cookie. It includes the port, since servers on one host share cookies.

    Over HTTPS it has a prefix that excludes other hosts and requires the path /, so the name
    includes the mount path.
    """
    port = (request.header(b"host") or "").rpartition(":")[2]
    name = f"onceward_{port}" if port.isascii() and port.isdecimal() else "onceward"
    if not secure:
        return name
    return _SECURE + name + "".join(c if c.isalnum() else "_" for c in ascii(_root(request))[1:-1])


def _root(request: Request) -> str:
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/")


def _is_secure(request: Request) -> bool:
    return (request.header(b"origin") or "").startswith("https:")


def _is_over_https(request: Request) -> bool:
    """Whether a page over HTTPS made a request, as far as detectable. Browsers send Sec-Fetch-Site
    only over HTTPS and to localhost."""
    host = (request.header(b"host") or "").lower()
    if _is_secure(request) or request.header(b"sec-fetch-site") is None:
        return _is_secure(request)
    return not (is_local(host) or host.partition(":")[0].endswith(".localhost"))


def _repeats(token: str, session: Session) -> bool:
    return hmac.compare_digest(token.encode(), session.token.encode())


def _key(whose: str, id_: str) -> Key:
    return SESSIONS, keys.join(whose, id_)


def _cookies(header: str) -> dict[str, Any]:
    pairs = [part.strip().partition("=") for part in header.split(";")]
    return {name: value for name, _, value in pairs}
