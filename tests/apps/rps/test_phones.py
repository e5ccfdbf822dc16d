"""Phones in the browser: texts from the page come in once, and what is heard is shown."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from apps.rps import limits, words
from apps.rps.game import Game
from apps.rps.phones import OURS, Phones
from apps.rps.provider import Reply
from onceward.errors import NotDone
from tests.browser import browsing, grievances
from tests.schedule.cluster import virtual
from tests.server_process import ServerProcess
from tests.web.asgi import Caller, keyed, serving
from tests.work.apps import Apps

ANN, BOB = "+12025550101", "+12025550102"
TEXTS = "/rps/phones/texts"

MODULE = """\
import onceward
from apps.rps import Game, Phones

app = onceward.App("sqlite:///rps.db")
app.mount("/rps", Game(app, [Phones()]).site())
"""


@asynccontextmanager
async def phones(**options: Any) -> AsyncIterator[tuple[Caller, Phones]]:
    app = Apps(shared=False).make()
    provider = Phones(**options)
    app.mount("/rps", Game(app, [provider]).site())
    async with serving(app) as caller:
        yield caller, provider


async def shown(caller: Caller, after: int = 0) -> list[tuple[str, str, bool]]:
    said = await caller.ok("GET", f"{TEXTS}?after={after}")
    return [(text["phone"], text["text"], text["sent"]) for text in said["texts"]]


@virtual
async def test_a_text_from_the_page_is_played_and_shown_once() -> None:
    async with phones() as (caller, _):
        for number in range(5):
            body = {"id": "text-0001", "from": "+1 202 555 0101", "text": "nick Ann"}
            assert await caller.ok("POST", TEXTS, body) == {"duplicate": number > 0}
        await caller.app.store.clock.sleep(1)
        assert await shown(caller, 1) == [(ANN, words.welcome("Ann"), False)]
        assert await shown(caller) == [
            (ANN, "nick Ann", True),
            (ANN, words.welcome("Ann"), False),
        ]


@virtual
async def test_the_page_waits_for_what_comes_and_not_for_ever() -> None:
    async with phones() as (caller, provider):
        waiting = asyncio.create_task(shown(caller))
        await caller.app.store.clock.sleep(0.5)
        assert not waiting.done()
        await provider.send("reply-1", Reply(BOB, OURS, "hello"))
        before_ms = caller.app.store.clock.now_ms()
        assert await waiting == [(BOB, "hello", False)]
        assert caller.app.store.clock.now_ms() - before_ms < 100
        assert await shown(caller, 1) == []
        waited_ms = caller.app.store.clock.now_ms() - before_ms
        assert limits.WAIT_S <= waited_ms / 1_000 < 2 * limits.WAIT_S


@virtual
async def test_a_page_that_was_just_opened_is_answered_at_once() -> None:
    async with phones() as (caller, provider):
        before_ms = caller.app.store.clock.now_ms()
        assert await caller.ok("GET", TEXTS) == {"texts": [], "after": 0}
        await provider.send("reply-1", Reply(BOB, OURS, "hello"))
        assert (await caller.ok("GET", TEXTS))["after"] == 1
        assert caller.app.store.clock.now_ms() - before_ms < 100


@virtual
async def test_who_waits_is_let_go_when_the_server_stops() -> None:
    async with phones() as (caller, _):
        waiting = asyncio.create_task(shown(caller))
        await caller.app.store.clock.sleep(0.5)
        caller.server.drain()
        assert await waiting == []


@virtual
async def test_a_reply_is_shown_once_for_its_id_and_can_be_asked_for() -> None:
    async with phones() as (caller, provider):
        reply = Reply(ANN, OURS, "hello")
        with pytest.raises(NotDone):
            await provider.ask("reply-1", reply, 0)
        for _ in range(3):
            await provider.send("reply-1", reply)
        assert await provider.ask("reply-1", reply, 0) == {"shown": True}
        assert await shown(caller) == [(ANN, "hello", False)]


@virtual
async def test_what_is_no_text_is_refused_and_not_stored() -> None:
    async with phones() as (caller, _):
        good = {"id": "text-0001", "from": ANN, "text": "help"}
        for changes, verdict in (
            ({"from": "Ann"}, (422, "wrong_type")),
            ({"from": 1}, (422, "wrong_type")),
            ({"id": "short"}, (422, "wrong_type")),
            ({"text": "x" * 1_601}, (422, "wrong_type")),
            ({"more": 1}, (422, "unknown_member")),
        ):
            assert (await caller("POST", TEXTS, {**good, **changes})).verdict == verdict, changes
        assert (await caller("POST", TEXTS, raw=b"{")).verdict == (400, "not_json")
        assert (await caller("GET", f"{TEXTS}?after=x")).verdict == (422, "bad_parameter")
        assert (await caller("GET", f"{TEXTS}?before=1")).verdict == (422, "bad_parameter")
        assert await shown(caller) == []


@virtual
async def test_pages_of_other_sites_cannot_play() -> None:
    good = {"id": "text-0001", "from": ANN, "text": "help"}
    strangers = ([("host", "evil.example")], [("origin", "https://evil.example")])
    verdicts = ((421, "wrong_host"), (403, "origin_refused"))
    async with phones() as (caller, _):
        for headers, verdict in zip(strangers, verdicts, strict=True):
            assert (await caller("POST", TEXTS, good, headers=headers)).verdict == verdict
            assert (await caller("GET", TEXTS, headers=headers)).verdict == verdict
        plain = [("content-type", "text/plain")]
        assert (await caller("POST", TEXTS, good, headers=plain)).status == 415
    async with phones(local=False) as (caller, _):
        assert (await caller("POST", TEXTS, good, headers=strangers[0])).status == 200


@virtual
async def test_where_there_are_keys_nobody_plays_from_any_number() -> None:
    good = {"id": "text-0001", "from": ANN, "text": "help"}
    for local, status in ((True, 401), (False, 200)):
        app = Apps(shared=False).make()
        app.mount("/rps", Game(app, [Phones(local=local)]).site())
        async with serving(app, keyed(ann="all")[0]) as caller:
            for call in (("POST", TEXTS, good), ("GET", TEXTS)):
                answer = await caller(*call, headers=[("host", "localhost")])
                assert answer.status == status


@virtual
async def test_the_page_has_no_script_within_and_may_load_none_from_elsewhere() -> None:
    async with phones() as (caller, _):
        page = await caller("GET", "/rps/phones")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        text = page.body.decode()
        assert text.count("<script") == text.count('<script type="module" src="phones/phones.js">')
        assert "<style" not in text
        assert " style=" not in text
        assert re.search(r"<[^>]* on\w+=", text) is None
        for name, kind in (("phones.js", "text/javascript"), ("phones.css", "text/css")):
            file = await caller("GET", f"/rps/phones/{name}")
            assert file.headers["content-type"].startswith(kind)
            assert file.headers["x-content-type-options"] == "nosniff"
            assert "innerHTML" not in file.body.decode()
        assert (await caller("GET", "/rps/phones/other.js")).status == 404


# In a browser.


@contextmanager
def served(folder: Path) -> Iterator[ServerProcess]:
    (folder / "playing.py").write_text(MODULE)
    with ServerProcess(folder, "--app", "playing:app") as server:
        yield server


class Handset:
    """One phone on the page."""

    def __init__(self, page: Any, number: str) -> None:
        self._phone = page.locator(f'section[data-number="{number}"]')

    def send(self, text: str) -> None:
        self._phone.locator("input").fill(text)
        self._phone.get_by_role("button", name="Send").click()

    def hears(self, text: str) -> None:
        """Wait until it shows a text as its last."""
        self._phone.locator("li.theirs").last.filter(has_text=text).wait_for()

    @property
    def texts(self) -> list[str]:
        found: list[str] = self._phone.locator("li").all_text_contents()
        return found


@pytest.mark.timeout(180)
def test_two_phones_play_a_game_in_the_browser(tmp_path: Path) -> None:
    size = {"width": 900, "height": 640}
    # While the server is away, requests to it fail.
    with served(tmp_path) as server, browsing("net::ERR_(CONN|EMPTY)", viewport=size) as page:
        page.goto(f"{server.url}/rps/phones")
        ann, bob = Handset(page, ANN), Handset(page, BOB)
        page.get_by_label("deliver every text five times").check()
        for phone, text, heard in (
            (ann, "nick Ann", words.welcome("Ann")),
            (bob, "nick Bob", words.welcome("Bob")),
            (ann, "throw rock Bob", words.you_wait("rock", "Bob")),
        ):
            phone.send(text)
            phone.hears(heard)
        bob.hears(words.they_wait("Ann"))
        assert "rock" not in "".join(bob.texts[-1:])
        bob.send("t scis ann")
        bob.hears(words.loss("scissors", "rock", "Ann"))
        ann.hears(words.win("rock", "scissors", "Bob"))
        wanted = [
            "nick Ann",
            words.welcome("Ann"),
            "throw rock Bob",
            words.you_wait("rock", "Bob"),
            words.win("rock", "scissors", "Bob"),
        ]
        assert ann.texts == wanted, "once each, though all were delivered five times"

        # A phone that has opted out hears nothing until it opts in.
        bob.send("Stop!")
        bob.hears(words.OPTED_OUT)
        bob.send("help")
        page.locator("li.pending").wait_for(state="detached")
        bob.send("start")
        bob.hears(words.BACK)
        assert bob.texts[-5:] == ["Stop!", words.OPTED_OUT, "help", "start", words.BACK]
        assert grievances(page) == []

        # What is said is text, whatever it looks like.
        ann.send("<img src=x onerror=alert(1)>")
        ann.hears(words.unknown("<img"))
        assert page.locator("img").count() == 0

        # The server is killed and comes back; the page goes on by itself, and sends again.
        server.kill()
        bob.send("games")
        server.start()
        server.until_ready()
        bob.hears(words.NO_NICK)

        # What was shown is there again on a new page, also on a phone that was added.
        adding = page.get_by_role("button", name="Add a phone")
        adding.click()
        adding.click()
        fourth = Handset(page, "+12025550104")
        fourth.send("help")
        fourth.hears(words.HELP)
        page.reload()
        fourth.hears(words.HELP)
        assert ann.texts[: len(wanted)] == wanted

        # The third has said nothing and is gone: its number is free, and the fourth's is not.
        adding.click()
        adding.click()
        numbers = page.locator("section.phone h2").all_text_contents()
        assert numbers == [ANN, BOB, *(f"+1202555010{last}" for last in (4, 3, 5))]
