"""The page in the guide to browsers works as it stands there."""

import re
from pathlib import Path

import pytest

from tests.browser import browsing, visiting
from tests.server_process import ServerProcess

pytestmark = pytest.mark.timeout(180)

GUIDE = Path(__file__).parents[2] / "docs" / "browser.md"


def test_the_page_of_the_guide_is_shared_by_all_who_have_it_open(tmp_path: Path) -> None:
    text = GUIDE.read_text()
    for kind, name in (("html", "index.html"), ("python", "shopping.py")):
        (code,) = re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        (tmp_path / name).write_text(code)
    assert "onceward serve --app shopping:app" in text
    with (
        ServerProcess(tmp_path, "--app", "shopping:app") as server,
        browsing() as ann,
        visiting(ann.context.browser) as ben,
    ):
        for page in (ann, ben):
            page.route("**/favicon.ico", lambda route: route.fulfill(status=204))
            page.goto(f"{server.url}/shopping")
        with ann.expect_console_message(lambda said: said.text == "step 1"):
            ann.locator("input").fill("milk")
            ann.keyboard.press("Enter")
        ben.get_by_text("milk").wait_for()
        ben.locator("input").fill("bread")
        ben.keyboard.press("Enter")
        ann.get_by_text("bread").wait_for()
        assert ann.locator("li").all_text_contents() == ["milk", "bread"]
        ann.get_by_text("milk").click()
        ben.get_by_text("milk").wait_for(state="detached")
        assert ben.locator("li").all_text_contents() == ["bread"]
