"""Who signs in at the console stays signed in, and nobody else can use that."""

from typing import Any

import jwt
import pytest

from onceward import limits
from onceward.callers import Caller as Identity
from onceward.web.auth import DEVELOPER, Access, ApiKey, Auth, JwtKey, digest_of
from onceward.web.grants import Grants
from onceward.web.sessions import HEADER
from tests.schedule.cluster import virtual
from tests.signed import claims, signed
from tests.web.asgi import HOST, Answer, AsgiCaller, Caller, keyed, serving
from tests.work.apps import Apps

ORIGIN = ("origin", f"http://{HOST}")
NAME = f"onceward_{HOST.rpartition(':')[2]}"


class Browser:
    """A browser that keeps its cookie, and a page that keeps its token."""

    def __init__(self, caller: Caller) -> None:
        self.caller = Caller(caller.server)
        self.cookie = ""
        self.token = ""

    async def enter(self, **how: str) -> Answer:
        answer = await self("POST", "/v1/session", how)
        if answer.status == 200:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
            self.token = answer.json["token"]
        return answer

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """A request of the console's own page; with headers, or other ones."""
        given = {"origin": ORIGIN[1], "sec-fetch-site": "same-origin"}
        if self.cookie:
            given |= {"cookie": self.cookie, HEADER.decode(): self.token}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        kept = [(name, value) for name, value in given.items() if value]
        return await self.caller(method, path, body, headers=kept)


def link(caller: Caller) -> str:
    return caller.server.sessions.link(DEVELOPER, "dev")


@virtual
async def test_a_link_signs_in_once() -> None:
    async with serving() as caller:
        browser, token = Browser(caller), link(caller)
        assert (await browser("GET", "/v1/session")).verdict == (401, "no_credentials")
        answer = await browser.enter(link=token)
        assert answer.json["name"] == "developer"
        assert answer.json["dev"] is True
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{NAME}=")
        assert cookie.endswith("; HttpOnly; SameSite=Strict")
        assert (await browser("GET", "/v1/session")).json == answer.json
        second = await Browser(caller).enter(link=token)
        assert second.verdict == (401, "no_credentials")
        assert "onceward console" in second.json["detail"]
        assert (await Browser(caller).enter(link="made up")).status == 401


@virtual
async def test_a_link_that_is_old_counts_no_more_and_only_some_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LINK_MS", 60_000)
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        old = link(caller)
        await apps.sleep(limits.LINK_MS / 1000)
        assert (await Browser(caller).enter(link=old)).status == 401
        links = [link(caller) for _ in range(limits.LINKS_MAX + 1)]
        assert (await Browser(caller).enter(link=links[0])).status == 401
        assert (await Browser(caller).enter(link=links[-1])).status == 200


@virtual
async def test_nobody_uses_up_the_links_of_others() -> None:
    auth, keys = keyed(ann="all", eve="")
    async with serving(auth=auth) as caller:
        ann, eve = (Caller(caller.server, keys[name]) for name in ("ann", "eve"))
        kept = (await ann.ok("POST", "/v1/session/link"))["link"]
        links = [
            (await eve.ok("POST", "/v1/session/link"))["link"] for _ in range(2 * limits.LINKS_MAX)
        ]
        first, last = [await Browser(caller).enter(link=link) for link in (links[0], links[-1])]
        assert (first.status, last.status) == (401, 200)
        assert (await Browser(caller).enter(link=kept)).json["name"] == "ann"


@virtual
async def test_a_key_signs_in_with_its_scopes_and_is_not_in_the_cookie() -> None:
    auth, keys = keyed(ann="manage:orders", bob="all")
    async with serving(auth=auth) as caller:
        browser = Browser(caller)
        assert (await browser.enter(token="ow_nobody")).verdict == (401, "no_credentials")
        answer = await browser.enter(token=f" {keys['ann']} ")
        assert answer.json["grants"] == [{"action": "manage", "pattern": "orders"}]
        assert not answer.json["everything"]
        assert keys["ann"] not in answer.headers["set-cookie"]
        assert (await browser("GET", "/v1/queues/orders")).status == 200
        assert (await browser("GET", "/v1/queues/mail")).verdict == (403, "not_allowed")
        assert (await browser("GET", "/v1/keys")).verdict == (403, "not_allowed")
        out = await browser("DELETE", "/v1/session")
        assert "Max-Age=0" in out.headers["set-cookie"]


@virtual
async def test_the_cookie_counts_only_with_the_token_and_from_its_own_page() -> None:
    auth, keys = keyed(ann="all")
    async with serving(auth=auth) as caller:
        browser = Browser(caller)
        await browser.enter(token=keys["ann"])
        asked = ("POST", "/v1/queues/orders/pause")
        for other in (
            {HEADER.decode(): ""},  # what a form of another page could send
            {HEADER.decode(): "guessed"},
            {"origin": "https://evil.example"},
            {"origin": "http://127.0.0.1:9999"},  # cookies know no ports
            {"sec-fetch-site": "cross-site", "origin": ""},
            {"sec-fetch-site": "same-site", "origin": ""},
            {"cookie": ""},
            {"cookie": f"{NAME}=x.y"},
            {"cookie": browser.cookie + "0"},
            {"cookie": browser.cookie.replace(NAME, "onceward_1")},
        ):
            answer = await browser(*asked, **other)
            assert answer.verdict == (401, "no_credentials"), other
        assert not caller.app.node.queue_settings("orders").paused
        assert (await browser(*asked)).status == 200
        for path in ("/v1/session", "/v1/session/link"):
            away = await browser(
                "POST", path, {"token": keys["ann"]}, origin="https://evil.example"
            )
            assert away.status == 401


@pytest.mark.parametrize("dev", [True, False])
@virtual
async def test_only_who_is_at_a_terminal_gets_a_link(dev: bool) -> None:
    auth, keys = keyed(ann="send:q")
    async with serving(auth=None if dev else auth) as caller:
        terminal = Caller(caller.server, None if dev else keys["ann"])
        made = await terminal.ok("POST", "/v1/session/link")
        browser = Browser(caller)
        answer = await browser.enter(link=made["link"])
        assert answer.json["name"] == ("developer" if dev else "ann")
        assert (await browser("POST", "/v1/session/link")).verdict == (401, "no_credentials")
        if not dev:
            anyone = Caller(caller.server)
            assert (await anyone("POST", "/v1/session/link")).verdict == (401, "no_credentials")


@virtual
async def test_a_session_makes_no_link_for_another_that_would_outlive_its_key() -> None:
    keys = [ApiKey("ann", digest_of("ow_ann"), ("all",)), ApiKey("bob", digest_of("ow_bob"), ())]
    auth = Auth(keys, [JwtKey("HS256", "s" * 32, "onceward")])
    async with serving(auth=auth) as caller:
        browser = Browser(caller)
        await browser.enter(token="ow_ann")
        # Whoever signs in can copy cookie and token from the browser to a terminal.
        terminal = {"origin": "", "sec-fetch-site": ""}
        assert (await browser("GET", "/v1/session", **terminal)).status == 200
        for more in ({}, {"authorization": "Bearer ow_bob"}, {"authorization": "Bearer a.b.c"}):
            answer = await browser("POST", "/v1/session/link", **terminal, **more)
            assert answer.verdict == (401, "no_credentials")


@virtual
async def test_dev_mode_takes_no_keys_and_nobody_from_elsewhere() -> None:
    async with serving() as caller:
        browser = Browser(caller)
        assert (await browser.enter(token="ow_x")).verdict == (401, "no_credentials")
        assert (await browser.enter()).verdict == (400, "bad_request")
        both = await browser("POST", "/v1/session", {"link": "a", "token": "b"})
        assert both.verdict == (400, "bad_request")
        elsewhere = {"host": "evil.example", "origin": "http://evil.example"}
        answer = await browser("POST", "/v1/session", {"link": link(caller)}, **elsewhere)
        assert answer.verdict == (421, "wrong_host")
        # A cookie of another mode is worth nothing here, nor a broken one.
        await browser.enter(link=link(caller))
        caller.server.auth.dev = False
        assert (await browser("GET", "/v1/session")).verdict == (401, "no_credentials")


@virtual
async def test_a_session_ends_with_its_time_and_with_its_key() -> None:
    apps = Apps(shared=False)
    auth, keys = keyed(ann="all")
    async with serving(apps.make(), auth) as caller:
        browser = Browser(caller)
        await browser.enter(token=keys["ann"])
        made = (await browser("POST", "/v1/keys", {"name": "bob", "scopes": ["send:q"]})).json
        second = Browser(caller)
        assert (await second.enter(token=made["key"])).json["name"] == "bob"
        assert (await second("GET", "/v1/activity")).status == 200
        assert (await browser("DELETE", f"/v1/keys/{made['id']}")).status == 200
        over = await second("GET", "/v1/activity")
        assert over.verdict == (401, "no_credentials")
        assert "sign in again" in over.json["detail"]
        app = caller.app
        session = await caller.server.sessions.find(_request(browser))
        assert session is not None
        left_ms = session.until_ms - app.store.clock.now_ms()
        assert left_ms <= limits.SESSION_MS
        eve = Access(Identity("user", "", "eve"), Grants(), app.store.clock.now_ms() + 5)
        short = await caller.server.sessions.open(eve, "jwt", _request(browser))
        assert short.until_ms == app.store.clock.now_ms() + 5


def _request(browser: Browser) -> Any:
    from onceward.web.http import Request

    headers = [(b"cookie", browser.cookie.encode()), (b"host", HOST.encode())]
    return Request({"method": "GET", "headers": headers})


@virtual
async def test_a_restart_and_another_node_keep_sessions_but_another_database_does_not() -> None:
    apps = Apps(shared=True)
    auth, keys = keyed(ann="all")
    async with serving(apps.make(), auth) as caller:
        browser = Browser(caller)
        await browser.enter(token=keys["ann"])
        async with serving(apps.make(), keyed(ann="all")[0]) as other:
            browser.caller = Caller(other.server)
            assert (await browser("GET", "/v1/session")).status == 200
    elsewhere = Apps(shared=False)
    elsewhere.make()  # or its secrets would be the same: here they come from its name
    async with serving(elsewhere.make(), auth) as caller:
        browser.caller = Caller(caller.server)
        assert (await browser("GET", "/v1/session")).verdict == (401, "no_credentials")


@virtual
async def test_a_session_by_a_token_ends_when_its_signing_key_leaves_the_settings() -> None:
    apps = Apps(shared=True)
    leaked, new = (JwtKey("HS256", one * 32, "onceward", ceiling=("all",)) for one in "ln")
    async with serving(apps.make(), Auth(jwt_keys=[leaked, new])) as caller:
        browsers = [Browser(caller), Browser(caller)]
        for browser, key in zip(browsers, (leaked, new), strict=True):
            token = signed(key.key, "eve", all=[""])
            assert (await browser.enter(token=token)).status == 200
            assert (await browser("GET", "/v1/keys")).status == 200
        async with serving(apps.make(), Auth(jwt_keys=[new])) as other:
            for browser in browsers:
                browser.caller = Caller(other.server)
            over, kept = [await browser("GET", "/v1/keys") for browser in browsers]
            assert over.verdict == (401, "no_credentials")
            assert kept.status == 200


@virtual
async def test_a_session_by_a_token_carries_its_grants_as_data() -> None:
    key = JwtKey("HS256", "s" * 32, "onceward", scopes={"mine": ("send:{sub}.*",)})
    details = [
        {"type": "onceward", "actions": ["manage", "send"], "identifier": "x all"},
        {"type": "onceward", "actions": ["all"]},
        *({"type": "onceward", "actions": ["send"], "identifier": one} for one in ("*", "q")),
    ]
    token = jwt.encode(
        {**claims("e*", 4_000_000_000), "scope": "mine all", "authorization_details": details},
        key.key,
    )
    async with serving(auth=Auth(jwt_keys=[key])) as caller:
        browser = Browser(caller)
        view = (await browser.enter(token=token)).json
        assert view["grants"] == [
            {"action": "send", "name": "*"},
            {"action": "send", "name": "q"},
            {"action": "send", "name": "x all"},
            {"action": "send", "pattern": "e[*].*"},
        ]
        assert not view["everything"]
        assert (await browser("GET", "/v1/keys")).verdict == (403, "not_allowed")
        message = {"body": 1, "key": "k"}
        for queue, status in (("q", 202), ("ex.1", 403), ("mail", 403), ("all", 403)):
            answer = await browser("POST", f"/v1/inbox/{queue}", message)
            assert answer.status == status, queue


@virtual
async def test_a_session_that_no_cookie_can_hold_is_refused() -> None:
    key = JwtKey("HS256", "s" * 32, "onceward")
    async with serving(auth=Auth(jwt_keys=[key])) as caller:
        for count, verdict in ((20, 200), (500, 413)):
            queues = [f"queue-{number}" for number in range(count)]
            answer = await Browser(caller).enter(token=signed(key.key, "eve", send=queues))
            assert answer.status == verdict
            assert len(answer.headers.get("set-cookie", "").partition(";")[0]) <= 4_096


@virtual
async def test_a_session_by_a_token_keeps_to_the_ceiling_of_now() -> None:
    apps = Apps(shared=True)
    wide = JwtKey("HS256", "s" * 32, "onceward", ceiling=("all",))
    async with serving(apps.make(), Auth(jwt_keys=[wide])) as caller:
        browser = Browser(caller)
        await browser.enter(token=signed(wide.key, "eve", all=[""], send=["q"]))
        assert (await browser("GET", "/v1/keys")).status == 200
        narrow = JwtKey("HS256", "s" * 32, "onceward")
        async with serving(apps.make(), Auth(jwt_keys=[narrow])) as other:
            browser.caller = Caller(other.server)
            assert (await browser("GET", "/v1/keys")).verdict == (403, "not_allowed")
            assert (await browser("POST", "/v1/inbox/q", {"body": 1, "key": "k"})).status == 202


@virtual
async def test_a_session_may_do_what_its_key_may_do_now() -> None:
    apps = Apps(shared=True)
    auth, keys = keyed(ann="all")
    async with serving(apps.make(), auth) as caller:
        browser = Browser(caller)
        await browser.enter(token=keys["ann"])
        assert (await browser("GET", "/v1/keys")).status == 200
        async with serving(apps.make(), keyed(ann="send:q")[0]) as other:
            browser.caller = Caller(other.server)
            assert (await browser("GET", "/v1/keys")).verdict == (403, "not_allowed")
            assert (await browser("GET", "/v1/session")).json["grants"] == [
                {"action": "send", "pattern": "q"}
            ]


@pytest.mark.parametrize(
    ("host", "root", "name"),
    [
        ("console.example", "", "__Host-onceward"),
        ("console.example:8443", "", "__Host-onceward_8443"),
        ("console.example", "/once/ward", "__Host-onceward_once_ward"),
    ],
)
@virtual
async def test_over_https_the_cookie_is_secure(host: str, root: str, name: str) -> None:
    auth, keys = keyed(ann="all")
    async with serving(auth=auth) as caller:
        mounted = AsgiCaller(caller.server, root_path=root)

        async def ask(method: str, cookie: str = "", body: Any = None) -> Answer:
            headers = [("host", host), ("origin", f"https://{host}"), ("cookie", cookie)]
            path = f"{root}/v1/session"
            return await mounted(method, path, body, headers=headers)

        given = (await ask("POST", body={"token": keys["ann"]})).headers["set-cookie"]
        assert given.startswith(f"{name}=")
        assert "; Path=/; " in given
        assert given.endswith("; HttpOnly; SameSite=Strict; Secure")
        cookie = given.partition(";")[0]
        assert (await ask("GET", cookie)).json["name"] == "ann"
        # What any page of a neighbouring host could set is not taken for it.
        other = cookie.removeprefix("__Host-")
        assert (await ask("GET", other)).verdict == (401, "no_credentials")
        assert (await ask("GET", f"{other}; {name}=x.y")).verdict == (401, "no_credentials")
        assert (await ask("DELETE", cookie)).headers["set-cookie"].startswith(f"{name}=;")
        assert (await ask("GET", cookie)).verdict == (401, "no_credentials")


@virtual
async def test_a_cookie_of_plain_http_does_not_count_over_https() -> None:
    auth, keys = keyed(ann="all")
    async with serving(auth=auth) as caller:
        browser = Browser(caller)
        await browser.enter(token=keys["ann"])
        assert (await browser("GET", "/v1/session")).status == 200
        browser.cookie = f"__Host-{browser.cookie}"
        assert (await browser("GET", "/v1/session")).verdict == (401, "no_credentials")


@virtual
async def test_a_cookie_planted_by_another_host_does_not_count_over_https() -> None:
    auth, keys = keyed(eve="send:q")
    async with serving(auth=auth) as caller:
        host = ("host", "console.example.com")
        entered = await caller("POST", "/v1/session", {"token": keys["eve"]}, headers=[host])
        planted = ("cookie", entered.headers["set-cookie"].partition(";")[0])

        async def ask(*more: tuple[str, str], at: str = host[1]) -> int:
            headers = [("host", at), planted, *more]
            return (await caller("GET", "/v1/session", headers=headers)).status

        assert await ask() == 200  # over plain HTTP
        assert await ask(("sec-fetch-site", "same-origin")) == 401
        assert await ask(("origin", "https://console.example.com")) == 401
        for own in ("localhost", "127.0.0.1", "console.localhost"):
            assert await ask(("sec-fetch-site", "same-origin"), at=own) == 200


@virtual
async def test_signing_out_ends_the_session_on_all_nodes() -> None:
    apps = Apps(shared=True)
    auth, keys = keyed(ann="all")
    async with serving(apps.make(), auth) as caller, serving(apps.make(), auth) as other:
        browser = Browser(caller)
        await browser.enter(token=keys["ann"])
        stolen = Browser(other)
        stolen.cookie, stolen.token = browser.cookie, browser.token
        assert (await stolen("GET", "/v1/keys")).status == 200
        assert (await browser("DELETE", "/v1/session")).json == {"signed_out": True}
        for thief in (stolen, browser):
            assert (await thief("GET", "/v1/session")).verdict == (401, "no_credentials")
            over = await thief("GET", "/v1/keys")
            assert over.verdict == (401, "no_credentials")
            assert "sign in again" in over.json["detail"]
        assert (await browser("DELETE", "/v1/session")).status == 200, "idempotent"


@virtual
async def test_sessions_are_listed_and_revoked_by_their_owner_or_by_who_may_do_all() -> None:
    apps = Apps(shared=True)
    auth, keys = keyed(ann="all", bob="send:q", eve="send:q")
    async with serving(apps.make(), auth) as caller, serving(apps.make(), auth) as other:
        browsers = {name: Browser(other) for name in ("ann", "bob", "eve")}
        for name, browser in browsers.items():
            agent = {"user-agent": f"browser of {name}\u202e"}
            answer = await browser("POST", "/v1/session", {"token": keys[name]}, **agent)
            browser.cookie = answer.headers["set-cookie"].partition(";")[0]
            browser.token = answer.json["token"]
        own = (await browsers["bob"]("GET", "/v1/sessions")).json
        [bobs] = own["sessions"]
        assert own["current"] == bobs["id"]
        assert (bobs["caller"], own["next"]) == ("key:bob", None)
        assert bobs["agent"].startswith("browser of bob")
        assert bobs["until_ms"] == bobs["created_ms"] + limits.SESSION_MS
        ann, eve = Caller(caller.server, keys["ann"]), Caller(caller.server, keys["eve"])
        assert (await eve("GET", "/v1/sessions?everyone=true")).verdict == (403, "not_allowed")
        place = f"/v1/sessions/{bobs['id']}"
        assert (await eve("DELETE", place)).verdict == (404, "no_such_session")
        assert (await eve("DELETE", f"{place}?caller=key:bob")).verdict == (403, "not_allowed")
        assert (await eve("DELETE", "/v1/sessions?caller=key:bob")).verdict == (403, "not_allowed")
        everyone = (await ann.ok("GET", "/v1/sessions?everyone=true"))["sessions"]
        assert [one["caller"] for one in everyone] == ["key:ann", "key:bob", "key:eve"]
        assert (await browsers["bob"]("GET", "/v1/queues")).status == 200
        assert await ann.ok("DELETE", f"{place}?caller=key:bob") == {"sessions": 1}
        assert (await browsers["bob"]("GET", "/v1/queues")).verdict == (401, "no_credentials")
        assert (await ann("DELETE", f"{place}?caller=key:bob")).verdict == (404, "no_such_session")
        assert await eve.ok("DELETE", "/v1/sessions") == {"sessions": 1}
        assert (await browsers["eve"]("GET", "/v1/session")).status == 401
        assert (await browsers["ann"]("GET", "/v1/session")).status == 200
        for odd in ("x" * 27, "%00", "a%23b"):
            assert (await ann("DELETE", f"/v1/sessions/{odd}")).status in (400, 404, 422)
        long = f"/v1/sessions?caller={'x' * 1_000}"
        assert (await ann("DELETE", long)).verdict == (422, "bad_parameter")


@virtual
async def test_of_very_many_sessions_of_a_caller_the_oldest_end() -> None:
    auth, keys = keyed(ann="all", bob="all")
    async with serving(auth=auth) as caller:
        bob = Browser(caller)
        await bob.enter(token=keys["bob"])
        browsers = [Browser(caller) for _ in range(limits.SESSIONS_EACH_MAX + 2)]
        for browser in browsers:
            await browser.enter(token=keys["ann"])
        statuses = [(await browser("GET", "/v1/session")).status for browser in browsers]
        assert statuses == [401, 401] + [200] * limits.SESSIONS_EACH_MAX
        assert (await bob("GET", "/v1/session")).status == 200
        revoked = await Caller(caller.server, keys["ann"]).ok("DELETE", "/v1/sessions")
        assert revoked == {"sessions": limits.SESSIONS_EACH_MAX}


@virtual
async def test_the_record_of_a_session_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SESSION_MS", 60_000)
    apps = Apps(shared=False)
    auth, keys = keyed(ann="all")
    async with serving(apps.make(), auth) as caller:
        ann = Caller(caller.server, keys["ann"])
        await Browser(caller).enter(token=keys["ann"])
        assert len((await ann.ok("GET", "/v1/sessions"))["sessions"]) == 1
        await apps.sleep(limits.SESSION_MS / 1000)
        assert (await ann.ok("GET", "/v1/sessions"))["sessions"] == []
