"""Browser sessions: signed cookies in place of API keys.

Who signs in at the console, by a link that counts once or by a key, gets a cookie: the caller's
name and what its token claims, signed with the server key, so that all nodes take it
and a restart ends no session. No script can read the cookie. It counts only together with a
header that repeats a token of the session: pages of other origins cannot set that header, and
cannot know the token, though a browser sends them the cookie's way (all ports of a machine share
their cookies).

Each session has a record, which every request looks for: without it the session is over, on all
nodes. So a session ends when its holder signs out, or when it is revoked.
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
"""In which a page repeats the token of its session."""
_PURPOSE = "session"
_FOUND = "onceward.session"
"""In the scope of a request whose session was looked for; None if it has none that counts."""
_SECURE = "__Host-"
"""Before the name of a cookie that browsers take over HTTPS alone, and from no other host."""


class Session(msgspec.Struct, frozen=True):
    """What a cookie says."""

    id: str
    caller: str
    """The caller's id."""
    claimed: Claimed
    """The claims of its token. For an API key it is empty: the key's scopes apply."""
    until_ms: int
    token: str
    """Which the page repeats in a header."""
    credential: str
    """The digest of the key by which its holder has signed in, or by which its token was signed;
    with that key, the session ends."""
    secure: bool
    """Whether it was opened over HTTPS: then its cookie has the name for that."""


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

    async def enter(self, link: str, request: Request) -> Session:
        """Sign in by a link, which then counts no more. Raises `no_credentials`."""
        caller, credential, until_ms = self._links.pop(link, (None, "", 0))
        if caller is None or until_ms <= self._app.store.clock.now_ms():
            raise BadInput(
                "this link was used already, or is too old: `onceward console` makes a new one",
                code="no_credentials",
            )
        return await self.open(caller, credential, request)

    async def open(self, caller: Access, credential: str, request: Request) -> Session:
        """A new session. Of one caller's very many, the oldest ends."""
        until_ms = self._app.store.clock.now_ms() + limits.SESSION_MS
        if caller.until_ms is not None:
            until_ms = min(until_ms, caller.until_ms)
        ids = self._app.store.ids
        secure = _is_secure(request)
        session = Session(
            ids.new(), caller.id, caller.claimed, until_ms, ids.token(16), credential, secure
        )
        self.cookie(session, request)  # or no record is made
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
        """The sessions of a caller, the oldest first; or of all callers, from behind a place on,
        and behind which to go on, if there are more."""

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
        """End a session of a caller, or all of them, at once on all nodes. Returns how many there
        were. Idempotent."""

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
        # Those who sign in at the same time may be a few more; a commit ends them all.
        most = limits.COMMIT_WRITES_MAX - 2
        rows = await tx.scan(SESSIONS, StoredSession, start=start, end=end, limit=most)
        return [(row.key, row.value) for row in rows]

    async def find(self, request: Request) -> Session | None:
        """The session that the cookie of a request is of, if it counts. The request remembers
        it."""
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
        """The session that a cookie says, if it is signed and has not expired."""
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
        """Whether a request shows a session that this server has signed, with its token. `find`
        tells whether it still counts."""
        token = request.header(HEADER)
        session = None if token is None else self._shown(request)
        return session is not None and _repeats(token or "", session)

    def holder(self, session: Session) -> Access | None:
        """Who has a session, with what they may do by now; None if it counts no more."""
        caller = Caller.parse(session.caller)
        access = Access(caller, Grants(), session.until_ms, session.claimed)
        return self._holder(session.credential, access)

    def caller(self, request: Request) -> Access | None:
        """Who makes a request by a session; None if it does not say that it is made by one.
        `find` has looked for it. Raises `no_credentials` if that does not count."""
        token = request.header(HEADER)
        if token is None:
            return None
        session: Session | None = request.scope.get(_FOUND)
        if session is None or not _repeats(token, session):
            raise BadInput("the session is over: sign in again", code="no_credentials")
        insist_own_page(request)
        caller = self.holder(session)
        assert caller is not None  # or it would not have been found
        return replace(caller, until_ms=session.until_ms)

    def cookie(self, session: Session | None, request: Request) -> tuple[bytes, bytes]:
        """The header that gives a browser its cookie, or takes it away."""
        text, left_s = "", 0
        # Over plain HTTP, as on one's own machine, a browser would not keep a secure one.
        secure = _is_secure(request)
        name = name_of(request, secure=secure)
        if session is not None:
            text = urlsafe_b64encode(msgspec.json.encode(session)).decode()
            text += "." + self._app.store.server_keys.sign(_PURPOSE, text)
            if len(text) + len(name) > limits.COOKIE_BYTES_MAX:
                raise BadInput(
                    "the token has too many grants for a session; use one with fewer",
                    code="value_too_large",
                )
            left_s = (session.until_ms - self._app.store.clock.now_ms()) // 1_000
        path = "/" if secure else _root(request) + "/"
        value = f"{name}={text}; Path={path}; Max-Age={left_s}; HttpOnly; SameSite=Strict"
        if secure:
            value += "; Secure"
        return b"set-cookie", value.encode("latin-1", errors="replace")


def insist_own_page(request: Request) -> None:
    """Raise `no_credentials` for a request that a page of another origin makes."""
    origin, host = request.header(b"origin"), request.header(b"host")
    if origin is not None and origin.partition("://")[2] != host:
        raise BadInput("this is for the console's own pages", code="no_credentials")
    if request.header(b"sec-fetch-site") in ("cross-site", "same-site"):
        raise BadInput("this is for the console's own pages", code="no_credentials")


def name_of(request: Request, *, secure: bool = False) -> str:
    """Of the cookie: with the port, since servers on one machine share their cookies. Over HTTPS
    it has a prefix: no other host can set it, and its path is / so that the name has the root."""
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
    """Whether a page over HTTPS makes a request, as far as that shows. Browsers send
    Sec-Fetch-Site over HTTPS alone, but for names of one's own machine."""
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
