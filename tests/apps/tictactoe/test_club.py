"""Tic-tac-toe as it is played: in real browsers, by honest people and by others."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from apps.tictactoe import Club
from onceward import tokens
from tests.browser import browsing, grievances
from tests.schedule.cluster import virtual
from tests.server_process import ROOT, ServerProcess
from tests.web.asgi import Caller, serving
from tests.work.apps import Apps

FOLDER = ROOT / "apps" / "tictactoe"
SECRET = "a secret of more than thirty-two bytes"
MODULE = """\
import onceward
from apps.tictactoe import Club

app = onceward.App("sqlite:///club.db")
patient = {"turn_s": 600, "grace_s": 600, "break_s": 0}
tables = {
    "main": {**patient, "max_wins": 2, "game_s": 3600},
    "brief": {**patient, "turn_s": 1, "idle": "leave"},
    "frail": {**patient, "grace_s": 1},
    "slow": {**patient, "break_s": 600, "lanes": ["vip", "main"]},
    "shy": {**patient, "waitlist_names": False},
}
app.mount("/tictactoe", Club(app, tables).site())
"""
X_WINS = [("X", 0), ("O", 3), ("X", 1), ("O", 4), ("X", 2)]
DRAWS = [*zip("XOXOXOXOX", (0, 1, 2, 4, 3, 5, 7, 6, 8), strict=True)]


def test_it_is_written_in_less_than_200_lines() -> None:
    lines = [line for path in FOLDER.glob("*.py") for line in path.read_text().splitlines()]
    assert len(lines) < 200


@asynccontextmanager
async def club() -> AsyncIterator[Caller]:
    app = Apps(shared=False).make()
    app.mount("/club", Club(app).site())
    async with serving(app) as caller:
        yield caller


@virtual
async def test_tables_are_made_when_someone_comes_and_once() -> None:
    async with club() as caller:
        for _ in range(2):
            hall = await caller.ok("GET", "/club/tables")
            assert [(table["id"], table["kind"]) for table in hall["tables"]] == [
                ("classic", "classic"),
                ("speed", "speed"),
                ("ranked", "ranked"),
            ]
        tables = (await caller.ok("GET", "/v1/tables"))["tables"]
        assert {table["game"] for table in tables} == {"tictactoe"}
        assert len(tables) == 3


@virtual
async def test_the_page_has_no_script_within_and_may_load_none_from_elsewhere() -> None:
    async with club() as caller:
        front = await caller("GET", "/club")
        assert (front.status, front.headers["location"]) == (302, "/club/")
        page = await caller("GET", "/club/")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        text = page.body.decode()
        assert text.count("<script") == text.count('<script type="module" src="page.js">')
        assert not re.search(r"<style| style=|<[^>]* on\w+=", text)
        for name in ("page.js", "page.css"):
            file = await caller("GET", f"/club/{name}")
            assert file.headers["x-content-type-options"] == "nosniff"
            assert "innerHTML" not in file.body.decode()
        assert (await caller("GET", "/club/other.js")).status == 404


# In a browser, with real tokens: nobody is who they say they are without one.


TABLES = ["main", "brief", "frail", "slow", "shy"]


def token(name: str, **names: list[str]) -> str:
    return tokens.sign(SECRET, user=name, play=TABLES, audience="club", **names)  # type: ignore[arg-type]


@contextmanager
def served(folder: Path) -> Iterator[ServerProcess]:
    (folder / "playing.py").write_text(MODULE)
    (folder / "onceward.toml").write_text(
        f'[[jwt]]\nalgorithm = "HS256"\nkey = "{SECRET}"\naudience = "club"\n'
    )
    with ServerProcess(folder, "--app", "playing:app") as server:
        yield server


class Tab:
    """Someone at the page, in a tab of their own."""

    def __init__(self, page: Any, url: str, name: str, lane: str = "") -> None:
        self.name = name
        self.page = page
        lanes = [f"slow/{lane}"] if lane else []
        page.goto(f"{url}/tictactoe/#token={token(name, lane=lanes)}&lane={lane}")
        assert page.locator("#board.inactive").count() == 1, "before it knows anything, too"
        self.sees(f"Signed in as {name}")

    def join(self, table: str = "main") -> None:
        self.page.bring_to_front()  # others are drawn rarely, and are slow to click on
        self.page.get_by_role("button", name=f"{table} (classic)").click()
        self.page.get_by_role("button", name="Join the table").click()
        self.page.get_by_role("button", name="Leave the").wait_for()

    def sees(self, text: str) -> None:
        """Wait until the page says something."""
        self.page.get_by_text(text).first.wait_for()

    def waitlist(self, *names: str) -> None:
        """Wait until the panel lists these, in this order."""
        self.page.wait_for_function(
            """(names) => {
                const shown = [...document.querySelectorAll("#waitlist li")];
                return JSON.stringify(shown.map((item) => item.textContent)) === names;
            }""",
            arg=json.dumps(names, separators=(",", ":")),
        )

    def may_move(self) -> None:
        self.page.locator("#board:not(.inactive)").wait_for()
        self.page.wait_for_function("document.title.startsWith('Your turn')")

    def may_not_move(self) -> None:
        """Wait until the board is not to be played on, and says so to everyone."""
        self.page.locator("#board.inactive").wait_for()
        assert self.page.locator('.cell[aria-disabled="true"]').count() == 9
        assert self.page.title() == "Tic-tac-toe"

    def move(self, cell: int, key: str = "", *, ends: bool = False) -> None:
        """Make a move, with the mouse or a key; unless it ends the game, someone else is next."""
        self.may_move()
        found = self.page.locator(".cell").nth(cell)
        if key:
            found.press(key)
        else:
            self.page.bring_to_front()
            found.click()
        if ends:
            return
        self.may_not_move()

    def call(self, path: str, body: Any = None, token: str = "") -> tuple[int, Any]:
        """A request of one's own making, with the token of the page or another one."""
        status, said = self.page.evaluate(
            """async ([path, body, token]) => {
                const headers = {
                    Authorization: `Bearer ${token || sessionStorage.getItem("token")}`,
                    "Content-Type": "application/json",
                };
                const method = body === null ? "GET" : "POST";
                const answer = await fetch(path, { method, headers, body });
                return [answer.status, await answer.json()];
            }""",
            [path, None if body is None else json.dumps(body), token],
        )
        return status, said


def play(tabs: dict[str, Tab], moves: list[tuple[str, int]]) -> None:
    """Moves of those who sit, by marker."""
    for marker, cell in moves:
        tabs[marker].move(cell)


@pytest.mark.timeout(300)
def test_two_play_and_a_third_waits_in_three_tabs(tmp_path: Path) -> None:
    size = {"width": 390, "height": 844}
    # While the server is away requests to it fail, and so do those of who cheats.
    forgiven = "net::ERR_|status of (403|409|422)|WebSocket"
    with served(tmp_path) as server, browsing(forgiven, viewport=size) as page:
        page.context.set_default_timeout(100_000)  # a server comes back slowly on a busy machine
        pages = [page, page.context.new_page(), page.context.new_page()]
        named = zip(pages, ("ann", "ben", "cas"), strict=True)
        ann, ben, cas = (Tab(one, server.url, name) for one, name in named)
        ann.join()
        ann.sees("Waiting for an opponent")
        ann.may_not_move()
        ben.join()
        ann.sees("Your turn. You play X.")
        assert ann.page.locator(".player.mine .user").text_content() == "ann (you)"
        # Someone else waits in front for a while, and goes again.
        assert ben.call("/v1/tables/main/join", {}, token("dan"))[0] == 200
        cas.join()
        cas.sees("You are number 2 in the waitlist. About 120\u00a0min to wait.")
        cas.waitlist("dan", "cas (you)")
        ann.waitlist("dan", "cas")
        assert ben.call("/v1/tables/main/leave", {}, token("dan"))[0] == 200
        cas.sees("You are number 1 in the waitlist. About 60\u00a0min to wait.")
        cas.waitlist("cas (you)")
        assert cas.page.locator("#waitlist [aria-current]").count() == 1
        cas.may_not_move()
        ben.may_not_move()

        # The loser goes to the back, and who waited sits down.
        play({"X": ann, "O": ben}, X_WINS[:-1])
        ann.move(2, ends=True)
        ben.sees("You are number 1 in the waitlist. About 45\u00a0min to wait.")  # it was measured
        ben.sees("ann won.")
        ben.may_not_move()
        cas.sees("ann (X) to move")
        cas.sees("Wait for your turn.")
        ann.sees("You won.")
        ann.sees("1 win in a row")
        ann.waitlist("ben")
        ben.waitlist("ben (you)")
        cheat(ann, ben, cas)

        # The server is killed in the middle of a game, and comes back: they go on.
        ann.move(4)
        for tab, cell, code in ((ann, 0, "not_your_turn"), (cas, 4, "bad_move")):
            assert tab.call("/v1/tables/main/move", {"move": cell})[1]["code"] == code
        server.kill()
        server.start()
        server.until_ready()
        cas.move(0)
        ann.move(3, key="Enter")
        cas.page.reload()  # within the time of grace
        cas.move(8)
        ann.move(5, key="Space", ends=True)

        # After two wins in a row the winner goes to the back, too.
        ben.sees("Your turn. You play X.")
        cas.sees("ben (X) to move")
        ann.sees("You are number 1 in the waitlist. About")
        # A draw: both stay, and swap markers.
        play({"X": ben, "O": cas}, DRAWS)
        cas.sees("Your turn. You play X.")
        ben.sees("Draw.")
        ann.sees("You are number 1 in the waitlist. About")

        # Watched again, move by move.
        ann.page.bring_to_front()
        ann.page.get_by_role("button", name="Replay the game").click()
        ann.sees("Replay: move 2 of 9")

        # Time runs out, and a tab is closed.
        ann.join("brief")
        ben.join("brief")
        ben.sees("You won on time.")
        ann.sees("ben won on time.")
        ann.join("frail")
        cas.join("frail")
        cas.page.close()
        ann.sees("You won: the opponent left.")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_end_of_a_game_stays_until_the_next_one_begins(
    tmp_path: Path, width: int, scheme: str
) -> None:
    size = {"width": width, "height": 844}
    with served(tmp_path) as server, browsing(viewport=size, color_scheme=scheme) as page:
        page.context.set_default_timeout(100_000)
        pages = [page, *(page.context.new_page() for _ in range(4))]
        lanes = {"ann": "", "ben": "", "cas": "", "vic": "vip", "wat": ""}
        tabs = [
            Tab(one, server.url, *named) for one, named in zip(pages, lanes.items(), strict=True)
        ]
        ann, ben, cas, vic, wat = tabs
        for tab in (ann, ben, cas, vic):
            tab.join("slow")
        wat.page.get_by_role("button", name="slow (classic)").click()
        wat.sees("You are watching. Join the table to play.")
        # Whoever has a grant for a lane waits there, before others.
        for tab in (cas, wat):
            tab.waitlist(
                *(
                    f"{name}{' (you)' if tab.name == name else ''}{lane}"
                    for name, lane in (("vic", "vip"), ("cas", "main"))
                )
            )
        play({"X": ann, "O": ben}, X_WINS[:-1])
        ann.move(2, ends=True)
        for tab in tabs:
            tab.page.locator(".cell.winning").nth(2).wait_for()
            assert tab.page.locator(".cell.winning").all_text_contents() == ["X"] * 3
            tab.sees("Next game in 10\u00a0min.")
            result = "You won" if tab is ann else "ann won"
            assert tab.page.locator("#message").text_content() == result
            assert tab.page.locator(".cell").all_text_contents() == [*"XXXOO", "", "", "", ""]
            tab.may_not_move()
            assert grievances(tab.page) == []
        assert vic.page.locator(".player.mine .user").text_content() == "vic (you)"
        assert ben.page.locator(".player.mine").count() == 0
        ben.sees("You are number 2 in the waitlist.")
        widths = "[document.documentElement.scrollWidth, document.body.clientWidth]"
        scroll, body = page.evaluate(widths)
        assert scroll <= width, "nothing is cut off"
        assert body > 0.8 * width, "the width of a screen is used"


@pytest.mark.timeout(300)
def test_a_table_that_hides_names_shows_positions_on_the_page(tmp_path: Path) -> None:
    with served(tmp_path) as server, browsing() as page:
        page.context.set_default_timeout(100_000)
        pages = [page, *(page.context.new_page() for _ in range(3))]
        people = zip(pages, ("ann", "ben", "cas", "dan"), strict=True)
        tabs = [Tab(one, server.url, name) for one, name in people]
        for tab in tabs:
            tab.join("shy")
        ann, _, cas, dan = tabs
        ann.waitlist("Player", "Player")
        cas.waitlist("You", "Player")
        dan.waitlist("Player", "You")


def cheat(ann: Tab, ben: Tab, cas: Tab) -> None:
    """Whoever cheats gets an error, and changes nothing. It is the turn of ann, who is X and plays
    cas; ben waits."""
    before = ann.call("/v1/tables/main")
    for tab, what, body, verdict in (
        (cas, "move", {"move": 0}, (409, "not_your_turn")),
        (ben, "move", {"move": 0}, (409, "not_seated")),
        (ben, "move", {"move": 0, "user": "ann"}, (403, "not_allowed")),
        (ann, "move", {"move": 9}, (422, "bad_move")),
        (ann, "move", {"move": {"winner": "ann"}}, (422, "bad_move")),
        (ann, "result", {"winners": ["ann"]}, (403, "not_allowed")),
        (ben, "leave", {"user": "cas"}, (403, "not_allowed")),
    ):
        status, said = tab.call(f"/v1/tables/main/{what}", body)
        assert (status, said["code"]) == verdict, (tab.name, what, body)
    assert ann.call("/v1/tables/main") == before
