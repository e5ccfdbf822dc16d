"""Takes screenshots of the demo and its applications, for the README and the guides.

python scripts/demo_pictures.py docs [NAME ...]
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.apps.demo.running import Demo
from tests.browser import launched, visiting
from tests.tabs import LOST

DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 780}
NOTES = (
    ("lemon", -420, -190, "Welcome!\nDrag me, write on me."),
    ("sky", -180, -240, "Who brings the projector?"),
    ("rose", 90, -220, "Demo on Thursday, 3 pm"),
    ("peach", -110, 40, "Lunch: soup or sandwiches"),
    ("lilac", 160, 80, "Offline? Go on writing. It is sent when you are back."),
    ("mint", -390, 70, "Questions so far:\n- how many rooms?\n- who may delete?"),
)
PUT_UP = """async (notes) => {
    const { Live } = await import("/client.js");
    const live = new Live(null, { token: "dev:Ann~000001" });
    const room = await live.join("board/team");
    room.batch(() => notes.forEach(([colour, x, y, text], number) => {
        const { id } = room.list("notes").push({ colour, by: number % 2 ? "Ben" : "Ann" });
        room.map("places").set(id, { x, y });
        room.map("texts").set(id, text);
    }));
    return live;
}"""


def landing(demo: Demo, browser: Any, to: Path, size: Any, scheme: str) -> None:
    """The landing page, after faults were injected."""
    with visiting(browser, LOST, viewport=size, color_scheme=scheme) as page:
        page.goto(demo.url)
        page.get_by_text("The server is running", exact=True).wait_for()
        page.locator("#board i").first.wait_for()
        page.wait_for_timeout(2_000)
        page.screenshot(path=str(to))


def worn(demo: Demo, browser: Any) -> None:
    """Generate a minute of traffic with kills, to have something to show."""
    with visiting(browser, LOST) as page:
        page.goto(demo.url)
        page.wait_for_timeout(20_000)
        page.get_by_role("button", name="Kill a worker").click()
        page.wait_for_timeout(12_000)
        page.get_by_role("button", name="Send everything ten times").click()
        page.wait_for_timeout(10_000)
        page.get_by_role("button", name="Kill the server").click()
        page.get_by_text("The server is back; it was down for").wait_for()
        page.wait_for_timeout(16_000)


def tictactoe(demo: Demo, browser: Any, to: Path) -> None:
    """Ann has won once and is to move; Dan and Ben wait."""
    pages = {}
    with visiting(browser, viewport={"width": 390, "height": 930}, device_scale_factor=2) as page:
        for name in ("Ann", "Ben", "Cas", "Dan"):
            pages[name] = one = page.context.new_page()
            one.goto(f"{demo.url}/tictactoe/#token=dev:{name}")
            one.get_by_role("button", name="Join the table").click()
            one.get_by_role("button", name="Leave").wait_for()

        def play(moves: str) -> None:
            for who, cell in zip(moves[::2], moves[1::2], strict=True):
                one = next(page for name, page in pages.items() if name.startswith(who))
                one.locator("#message").get_by_text("Your turn").wait_for()
                one.locator(".cell").nth(int(cell)).click()

        play("A4B0A2B3A6")
        play("A4C0A2C6")
        pages["Ann"].locator("#message").get_by_text("Your turn").wait_for()
        pages["Ann"].evaluate("scrollTo(0, 0)")
        pages["Ann"].screenshot(path=str(to))


def phones(demo: Demo, browser: Any, to: Path) -> None:
    """Two phones have played."""
    with visiting(browser, viewport={"width": 720, "height": 690}) as page:
        page.goto(f"{demo.url}/rps/phones")
        for phone, text, heard in (
            (0, "nick Ann", "You are Ann."),
            (1, "n Bob", "You are Bob."),
            (0, "throw rock Bob", "You throw rock"),
            (1, "t s ann", "You lose"),
        ):
            one = page.locator(".phone").nth(phone)
            one.get_by_label("Text").fill(text)
            one.get_by_role("button", name="Send").click()
            one.get_by_text(heard).wait_for()
        page.locator(".phone").nth(0).get_by_text("You win").wait_for()
        page.screenshot(path=str(to))


def board(demo: Demo, browser: Any, to: Path, size: Any) -> None:
    """Ann holds a note, Ben points at one, Cas writes."""
    with ExitStack() as stack:
        pages = [stack.enter_context(visiting(browser, LOST, viewport=size)) for _ in range(3)]
        page = pages[0]
        for name, one in zip(("Ann", "Ben", "Cas"), pages, strict=True):
            one.add_init_script(f"localStorage.setItem('name', '{name}')")
            one.goto(f"{demo.url}/board/team")
            one.locator("#status").get_by_text("live").wait_for()
        if page.locator(".note").count() == 0:
            page.evaluate(PUT_UP, NOTES)
            page.locator(".note").nth(len(NOTES) - 1).wait_for()
        for one in pages:
            one.keyboard.press("0")
        ben, cas = pages[1], pages[2]
        ben.bring_to_front()
        box = ben.locator(".note", has_text="Lunch").bounding_box()
        ben.mouse.move(box["x"] + box["width"] / 3, box["y"] + box["height"] / 3)
        ben.mouse.down()
        ben.mouse.move(box["x"] + box["width"] / 2.6, box["y"] + box["height"] / 2.8, steps=4)
        cas.bring_to_front()
        box = cas.locator(".note", has_text="Offline").bounding_box()
        cas.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        cas.mouse.move(box["x"] + box["width"] / 1.7, box["y"] + box["height"] / 2.5, steps=4)
        page.bring_to_front()
        page.locator(".note", has_text="Demo on").click()
        page.wait_for_timeout(1_000)
        page.screenshot(path=str(to))


PICTURES: dict[str, Callable[[Demo, Any, Path], None]] = {
    "tictactoe.png": tictactoe,
    "rps.png": phones,
    "board.png": lambda *all_: board(*all_, {"width": 1200, "height": 760}),
    "board-phone.png": lambda *all_: board(*all_, PHONE),
    "demo.png": lambda *all_: landing(*all_, DESKTOP, "light"),
    "demo-dark.png": lambda *all_: landing(*all_, DESKTOP, "dark"),
    "demo-phone.png": lambda *all_: landing(*all_, PHONE, "light"),
}


def main() -> None:
    target, *names = sys.argv[1:]
    wanted = names or list(PICTURES)
    with TemporaryDirectory() as folder, Demo(Path(folder)) as demo, launched() as browser:
        if any(name.startswith("demo") for name in wanted):
            worn(demo, browser)
        for name in wanted:
            PICTURES[name](demo, browser, Path(target) / name)


if __name__ == "__main__":
    main()
