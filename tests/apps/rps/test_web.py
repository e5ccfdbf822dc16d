"""Players at a page: they play those on phones, and nobody learns more than they may."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from apps.rps import words
from apps.rps.game import Game
from apps.rps.phones import Phones
from apps.rps.provider import Reply
from apps.rps.web import Web, room_of
from onceward.errors import NotDone
from onceward.web.auth import Auth, JwtKey
from tests.apps.rps.test_phones import BOB, Handset
from tests.browser import browsing, grievances
from tests.docs.book import blocks
from tests.docs.parts import declare
from tests.schedule.cluster import virtual
from tests.server_process import ServerProcess
from tests.signed import signed
from tests.web.asgi import Caller, serving
from tests.work.apps import Apps

DOCS = Path(__file__).parents[3] / "docs/rps.md"

MODULE = """\
import onceward
from apps.rps import Game, Phones, Web

app = onceward.App("sqlite:///rps.db")
app.mount("/rps", Game(app, [Phones(), Web()], throw_s=600).site())
"""


class Site:
    """A game that is played at pages and from phones."""

    def __init__(self, apps: Apps, caller: Caller, web: Web) -> None:
        self.apps = apps
        self.app = caller.app
        self.web = web
        self._caller = caller
        self._texts = 0

    def as_(self, name: str) -> Caller:
        return Caller(self._caller.server, f"dev:{name}")

    async def act(self, name: str, text: str, id_: str = "") -> Any:
        self._texts += 1
        body = {"id": id_ or f"text-{self._texts:04}", "text": text}
        return await self.as_(name).ok("POST", "/rps/play/texts", body)

    async def text(self, phone: str, text: str) -> None:
        self._texts += 1
        body = {"id": f"text-{self._texts:04}", "from": phone, "text": text}
        await self._caller.ok("POST", "/rps/phones/texts", body)

    async def me(self, name: str) -> Any:
        """What a player sees once all is done that was begun."""
        await self.apps.sleep(1)
        return await self.as_(name).ok("GET", "/rps/play/me")

    async def phone_hears(self, phone: str) -> list[str]:
        await self.apps.sleep(1)
        shown = (await self._caller.ok("GET", "/rps/phones/texts"))["texts"]
        return [text["text"] for text in shown if text["phone"] == phone and not text["sent"]]


@asynccontextmanager
async def site(**options: Any) -> AsyncIterator[Site]:
    apps = Apps(shared=False)
    app, web = apps.make(), Web()
    app.mount("/rps", Game(app, [Phones(), web], **options).site())
    async with serving(app) as caller:
        yield Site(apps, caller, web)


@virtual
async def test_someone_at_a_page_plays_someone_on_a_phone() -> None:
    async with site(throw_s=60.0) as here:
        await here.act("ann", "nick Ann")
        await here.text(BOB, "nick Bob")
        await here.act("ann", "throw rock Bob")
        me = await here.me("ann")
        assert me["nick"] == "Ann"
        [game] = me["games"]
        assert (game["nick"], game["mine"]) == ("Bob", "rock")
        assert 50_000 < game["due_ms"] - me["now_ms"] <= 60_000
        assert await here.phone_hears(BOB) == [words.welcome("Bob"), words.they_wait("Ann")]
        await here.text(BOB, "t p ann")
        me = await here.me("ann")
        assert me["games"] == []
        assert me["score"] == {"wins": 0, "losses": 1, "ties": 0, "nick": ""}
        assert [heard["text"] for heard in me["heard"]] == [
            words.entered("Ann"),
            words.you_wait("rock", "Bob"),
            words.loss("rock", "paper", "Bob"),
        ]
        assert (await here.phone_hears(BOB))[-1] == words.win("paper", "rock", "Ann")
        # And the other way round, on the same clock.
        await here.text(BOB, "t s ann")
        [game] = (await here.me("ann"))["games"]
        assert (game["nick"], game["mine"]) == ("Bob", None)
        await here.apps.sleep(61)
        assert (await here.me("ann"))["heard"][-1]["text"] == words.loss_by_time("Bob")
        assert (await here.phone_hears(BOB))[-1] == words.win_by_time("Ann")


@virtual
async def test_what_is_sent_ten_times_counts_once_and_ids_of_others_are_others() -> None:
    async with site() as here:
        for number in range(10):
            said = await here.act("ann", "nick Ann", "text-same")
            assert said == {"duplicate": number > 0}
        assert await here.act("bob", "nick Bob", "text-same") == {"duplicate": False}
        assert [text["text"] for text in (await here.me("ann"))["heard"]] == [words.entered("Ann")]
        assert (await here.me("bob"))["nick"] == "Bob"


@virtual
async def test_the_room_rings_and_tells_nothing() -> None:
    async with site() as here:
        for name in ("ann", "bob"):
            await here.act(name, f"nick {name}")
        await here.me("ann")
        await here.me("bob")

        async def room(name: str) -> Any:
            return await here.app.run(lambda tx: here.app.rooms.load(tx, room_of(f"@{name}")))

        before = (await room("bob")).seq
        await here.act("ann", "throw scissors bob")
        await here.me("ann")
        assert (await room("bob")).seq > before
        for name in ("ann", "bob"):
            state = (await room(name)).state.plain()
            assert list(state["maps"]["news"]) == ["number"]
            assert "scissors" not in str(state)
        bob = await here.me("bob")
        assert [game["mine"] for game in bob["games"]] == [None]
        assert "scissors" not in str(bob)


@virtual
async def test_a_reply_is_heard_once_for_its_id_and_can_be_asked_for() -> None:
    async with site() as here:
        reply = Reply("@ann", "", "hello")
        with pytest.raises(NotDone):
            await here.web.ask("reply-1", reply, 0)
        for _ in range(3):
            await here.web.send("reply-1", reply)
        assert await here.web.ask("reply-1", reply, 0) == {"shown": True}
        assert [heard["text"] for heard in (await here.me("ann"))["heard"]] == ["hello"]


@virtual
async def test_what_is_no_text_or_has_no_credentials_is_refused() -> None:
    async with site() as here:
        ann = here.as_("ann")
        for body, verdict in (
            ({"id": "short", "text": "x"}, (422, "wrong_type")),
            ({"id": "text-0001", "text": 1}, (422, "wrong_type")),
            ({"id": "text-0001"}, (422, "missing_member")),
            ({"id": "text-0001", "text": "x", "from": "bob"}, (422, "unknown_member")),
        ):
            assert (await ann("POST", "/rps/play/texts", body)).verdict == verdict
        strange = [("origin", "https://evil.example")]
        for method, path in (("GET", "/rps/play/me"), ("POST", "/rps/play/texts")):
            answer = await ann(method, path, headers=strange)
            assert answer.verdict == (403, "origin_refused")
        assert (await here.as_("x" * 300)("GET", "/rps/play/me")).verdict == (422, "bad_name")


@virtual
async def test_who_plays_at_the_page_acts_in_the_name_of_nobody_else() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    app.mount("/rps", Game(app, [Phones(), Web()]).site())
    secret = "s" * 32
    [signing] = [one.text for one in blocks("rps.md", DOCS.read_text()) if "sign(" in one.text]
    made = (declare(signing)["token_for"]("ann", secret), signed(secret, "bob", read=["rps:@bob"]))
    issuers = [JwtKey("HS256", secret, audience) for audience in ("rps", "onceward")]
    async with serving(app, Auth(jwt_keys=issuers)) as caller:
        ann, bob = (Caller(caller.server, token) for token in made)
        typed = {"id": "text-0001", "text": "nick Ann"}
        await ann.ok("POST", "/rps/play/texts", typed)
        await apps.sleep(1)
        assert (await ann.ok("GET", "/rps/play/me"))["nick"] == "Ann"
        # As a text of another, by the way that the page itself does not go.
        forged = {"line": {"phone": "@bob", "via": "web", "ours": ""}, "text": "nick Fool"}
        answer = await ann("POST", "/v1/inbox/rps-texts", {"body": forged, "key": "k"})
        assert answer.verdict == (403, "not_allowed")
        assert (await bob("POST", "/rps/play/texts", typed)).verdict == (403, "not_allowed")
        assert (await bob("GET", "/rps/play/me")).verdict == (403, "not_allowed")


@virtual
async def test_the_page_has_no_script_within_and_may_load_none_from_elsewhere() -> None:
    async with site() as here:
        caller = here.as_("ann")
        page = await caller("GET", "/rps/play")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        text = page.body.decode()
        assert text.count("<script") == text.count('<script type="module" src="play/play.js">')
        assert not re.search(r"<style| style=|<[^>]* on\w+=", text)
        for name in ("play.js", "play.css"):
            file = await caller("GET", f"/rps/play/{name}")
            assert file.headers["x-content-type-options"] == "nosniff"
            assert "innerHTML" not in file.body.decode()


@pytest.mark.timeout(180)
def test_a_page_plays_a_phone_in_the_browser(tmp_path: Path) -> None:
    (tmp_path / "playing.py").write_text(MODULE)
    with (
        ServerProcess(tmp_path, "--app", "playing:app") as server,
        browsing(viewport={"width": 390, "height": 780}) as page,
    ):
        phones = page.context.new_page()
        phones.goto(f"{server.url}/rps/phones")
        bob = Handset(phones, BOB)
        bob.send("nick Bob")
        bob.hears(words.welcome("Bob"))

        page.bring_to_front()
        page.goto(f"{server.url}/rps/play")
        page.get_by_label("Your name").fill("ann")
        page.get_by_role("button", name="Enter game").click()
        nick = page.get_by_label("Your nickname")
        for name, fits in (("\u0905\u0928\u094d\u0928\u093e", True), ("A+B", False), ("Ann", True)):
            nick.fill(name)
            assert nick.evaluate("input => input.checkValidity()") is fits, name
        page.get_by_role("button", name="Take nickname").click()
        page.get_by_label("Throw at", exact=True).fill("Bob")
        page.get_by_role("button", name="Rock").click()
        page.get_by_text("You threw rock at Bob.").wait_for()
        bob.hears(words.they_wait("Ann"))
        bob.send("t scissors Ann")
        bob.hears(words.loss("scissors", "rock", "Ann"))
        page.get_by_text(words.win("rock", "scissors", "Bob")).wait_for()
        page.get_by_text("1 won, 0 lost, 0 tied").wait_for()

        # The phone begins, and the page answers with the keyboard alone.
        bob.send("t paper Ann")
        page.get_by_role("button", name="Throw at Bob").press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        bob.hears(words.loss("paper", "scissors", "Ann"))
        page.get_by_text("2 won, 0 lost, 0 tied").wait_for()
        assert grievances(page) == []
