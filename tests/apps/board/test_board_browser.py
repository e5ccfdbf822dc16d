"""The board in browsers: two guests see each other's notes move, also after one was offline."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import browsing
from tests.server_process import ROOT, ServerProcess

pytestmark = pytest.mark.timeout(180)

# What Chromium says of connections that are refused, cut or offline.
LOST = "net::ERR_|WebSocket connection to"
SCRIPT = ROOT / "tests" / "js" / "board.js"
MODULE = """\
import onceward
from apps.board import Board

app = onceward.App("sqlite:///board.db")
app.mount("/board", Board(app).site())
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("board")
    (folder / "boards.py").write_text(MODULE)
    with ServerProcess(folder, "--app", "boards:app") as server:
        yield server


@pytest.fixture(scope="module")
def first() -> Iterator[Any]:
    """A page, in a browser for all tests. While someone is offline, requests fail."""
    screen = {"width": 1100, "height": 720}
    with browsing(LOST, viewport=screen, reduced_motion="reduce") as page:
        yield page


BOARD = """[...document.querySelectorAll(".note")]
    .sort((one, other) => one.style.zIndex - other.style.zIndex)
    .map((note) => [
        note.querySelector(".text").textContent,
        note.style.getPropertyValue("--left"),
        note.style.getPropertyValue("--top"),
        note.dataset.colour,
    ])"""


class Guest:
    """Someone with a board on the screen."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        page.goto(url)
        self.sees("live")

    def sees(self, status: str) -> None:
        """Wait until the status says so."""
        self.page.locator("#status", has_text=status).wait_for()

    def reads(self, text: str) -> Any:
        """Wait until a note says so."""
        note = self.page.locator(".note", has=self.page.locator(f'.text:text-is("{text}")'))
        note.wait_for()
        return note

    def puts_up(self, text: str) -> Any:
        self.page.get_by_role("button", name="Add note", exact=True).click()
        self.page.locator("textarea").fill(text)
        self.page.keyboard.press("Escape")
        return self.reads(text)

    def drags(self, text: str, dx: int, dy: int) -> None:
        box = self.reads(text).bounding_box()
        x, y = box["x"] + 15, box["y"] + 15  # where no later one lies upon it
        mouse = self.page.mouse
        mouse.move(x, y)
        mouse.down()
        mouse.move(x + dx / 2, y + dy / 2, steps=3)
        mouse.move(x + dx, y + dy, steps=3)
        mouse.up()
        self.settles()

    def settles(self) -> None:
        """Wait until all that was done here is drawn: it is by the next frame."""
        frame = "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"
        self.page.evaluate(f"() => {frame}")

    def place(self, text: str) -> tuple[int, int]:
        self.reads(text)
        left, top = next(note[1:3] for note in self.board if note[0] == text)
        return int(left.removesuffix("px")), int(top.removesuffix("px"))

    def waits_for(self, text: str, place: tuple[int, int]) -> None:
        """Wait until a note lies there."""
        self.page.wait_for_function(
            """([text, left, top]) => [...document.querySelectorAll(".note")].some(
                (note) => note.querySelector(".text").textContent === text &&
                    note.style.getPropertyValue("--left") === left &&
                    note.style.getPropertyValue("--top") === top)""",
            arg=[text, *(f"{side}px" for side in place)],
        )

    def undo(self) -> None:
        self.page.locator("#undo").click()

    def is_told(self, words: str) -> None:
        self.page.locator("#toast", has_text=words).wait_for()

    @property
    def board(self) -> Any:
        """All notes from the bottom up: what they say, where they lie, their colour."""
        return self.page.evaluate(f"() => {BOARD}")

    def agrees_with(self, other: "Guest") -> None:
        """Wait until both boards are the same. Either may still have to hear of something."""
        for _ in range(600):
            if self.board == other.board:
                return
            self.page.wait_for_timeout(50)
        assert self.board == other.board


@pytest.fixture
def ann_and_ben(
    first: Any, server: ServerProcess, request: pytest.FixtureRequest
) -> Iterator[tuple[Guest, Guest]]:
    name = request.node.name.replace("_", "-")[5:40].strip("-")
    url = f"{server.url}/board/{name}"
    wrong: list[str] = []
    phone = {"width": 390, "height": 780}
    other = first.context.browser.new_context(
        viewport=phone, has_touch=True, reduced_motion="reduce"
    )
    page = other.new_page()
    page.set_default_timeout(30_000)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield Guest(first, url), Guest(page, url)
    other.close()
    assert wrong == []


def test_the_model_keeps_its_promises(first: Any, server: ServerProcess) -> None:
    first.route("**/tests/*", lambda route: route.fulfill(path=SCRIPT))
    first.goto(f"{server.url}/board/model")
    script = """async () => {
        const { wrong } = await import("/tests/board.js");
        return wrong(await import("./page/model.js"));
    }"""
    assert first.evaluate(script) == []


def test_what_one_does_is_seen_by_the_other(ann_and_ben: tuple[Guest, Guest]) -> None:
    ann, ben = ann_and_ben
    ann.puts_up("Buy milk")
    before = ann.place("Buy milk")
    assert ben.place("Buy milk") == before
    ann.drags("Buy milk", 180, 60)
    after = ann.place("Buy milk")
    assert after != before
    ben.waits_for("Buy milk", after)

    # The other's cursor is where the hand is, with its name.
    cursor = ben.page.locator(".cursor")
    cursor.wait_for()
    name = ann.page.locator("#me").get_attribute("aria-label")
    assert cursor.inner_text() == name
    assert ben.page.locator("#people li").get_attribute("aria-label") == name

    # What is written is text, whatever it looks like.
    ben.puts_up("<img src=x onerror=alert(1)>")
    ann.reads("<img src=x onerror=alert(1)>")
    assert ann.page.locator("#world img").count() == 0

    # With a finger, the second tap on a note is to write on it.
    box = ben.reads("Buy milk").bounding_box()
    for _ in range(2):
        ben.page.touchscreen.tap(box["x"] + 5, box["y"] + 5)
    ben.page.locator(".note.writing textarea").fill("Buy oat milk")
    ann.reads("Buy oat milk")
    ann.page.locator(".held", has_text=" writes").wait_for()

    # The name is the other's to see as soon as it is changed.
    ann.page.locator("#me").click()
    ann.page.locator("#called").fill("Ann Lee")
    ann.page.get_by_role("button", name="Save name").click()
    ben.page.locator('#people li[aria-label="Ann Lee"]').wait_for()


def test_both_edit_while_one_is_offline_and_agree_in_the_end(
    ann_and_ben: tuple[Guest, Guest], server: ServerProcess
) -> None:
    ann, ben = ann_and_ben
    ann.puts_up("Plans")
    ann.puts_up("Doubts")
    ben.reads("Plans")
    ben.reads("Doubts")

    ben.page.context.set_offline(True)
    ben.sees("offline")
    ben.puts_up("From Ben")
    ben.reads("Plans").press("Enter")
    ben.page.locator("textarea").fill("Big plans")
    ben.page.keyboard.press("Escape")
    ben.sees("pending changes")
    ann.puts_up("From Ann")
    ann.drags("Plans", -150, 80)
    ann.reads("Doubts").press("Delete")
    ann.settles()
    place = ann.place("Plans")
    assert ann.page.locator(".note").count() == 2
    assert ben.page.locator(".note").count() == 3

    ben.page.context.set_offline(False)
    ben.sees("live")
    ann.waits_for("Big plans", place)  # moved by one, written by the other: both count
    ben.waits_for("Big plans", place)
    ann.reads("From Ben")
    ben.reads("From Ann")
    ann.agrees_with(ben)
    assert sorted(note[0] for note in ann.board) == ["Big plans", "From Ann", "From Ben"]

    # The same when it is the server that is away.
    server.kill()
    ann.sees("offline")
    ann.puts_up("Meanwhile")
    server.start()
    server.until_ready()
    ben.reads("Meanwhile")
    ann.sees("live")
    ann.agrees_with(ben)


def test_undo_takes_back_ones_own_last_step_and_says_why_when_it_cannot(
    ann_and_ben: tuple[Guest, Guest],
) -> None:
    ann, ben = ann_and_ben
    ann.puts_up("First")
    start = ann.place("First")
    ben.reads("First")
    ben.puts_up("Second")
    ann.reads("Second")
    ann.drags("First", 200, -40)
    moved = ann.place("First")
    ben.waits_for("First", moved)

    # A drag is one step, and what the other did stays.
    ann.undo()
    ann.is_told("Undone.")
    ben.waits_for("First", start)
    ben.reads("Second")
    ann.page.locator("#redo").click()
    ben.waits_for("First", moved)

    # What the other has changed since is not taken back, and it says who did.
    ben.reads("First").focus()
    ben.page.keyboard.press("ArrowLeft")
    theirs = (moved[0] - 20, moved[1])
    ann.waits_for("First", theirs)
    name = ben.page.locator("#me").get_attribute("aria-label")
    ann.undo()
    ann.is_told(f"{name} moved “First” in the meantime")
    ann.settles()
    assert ann.place("First") == theirs

    # The steps before that are still there to undo: what was written, and that it was put up.
    ann.undo()
    ann.is_told("Undone.")
    ben.reads("")
    ann.undo()
    ben.page.locator(".note").filter(has_not_text="Second").wait_for(state="detached")
    ann.page.locator("#undo:disabled").wait_for()
    ann.settles()
    assert [note[0] for note in ann.board] == ["Second"]


def test_the_slider_shows_the_board_as_it_was_and_brings_it_back(
    ann_and_ben: tuple[Guest, Guest],
) -> None:
    ann, ben = ann_and_ben
    ann.puts_up("Keep me")
    ann.reads("Keep me").press("Delete")
    ann.puts_up("Later")
    ben.reads("Later")
    ann.page.locator("#history").click()
    slider = ann.page.locator("#slider")
    slider.wait_for()
    # Put up, written, taken away; put up, written.
    ann.page.locator("#when", has_text="Step 5 of 5").wait_for()
    for step in (4, 3, 2):
        slider.press("ArrowLeft")
        ann.page.locator("#when", has_text=f"Step {step} of 5").wait_for()
    ann.reads("Keep me")
    assert ann.page.locator(".note").count() == 1
    ben.reads("Later")  # for the others it is now
    ann.page.get_by_role("button", name="Restore this step").click()
    ben.reads("Keep me")
    ann.undo()
    ben.reads("Later")
    ann.agrees_with(ben)
