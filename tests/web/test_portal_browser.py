"""The portal of an endpoint in a real browser."""

import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.browser import grievances, launched, visiting
from tests.server_process import ServerProcess

pytestmark = pytest.mark.timeout(240)  # for a browser on a busy machine

MARKUP = "<img src=x onerror=alert(1)>"


class Portal:
    def __init__(self, server: ServerProcess, browser: Any, path: str) -> None:
        self.server = server
        self.browser = browser
        self.path = path

    def ask(self, path: str, body: Any = None, method: str = "POST") -> Any:
        return ask(self.server, path, body, method)


def ask(server: ServerProcess, path: str, body: Any = None, method: str = "POST") -> Any:
    data = None if body is None else json.dumps(body).encode()
    kind = {"Content-Type": "application/json"} if data else {}
    with urlopen(Request(f"{server.url}/v1/{path}", data, kind, method=method)) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    server = ServerProcess(tmp_path_factory.mktemp("portal"))
    with server:
        hook = f"{server.url}/v1/inbox/hooks"
        ask(server, "endpoints", {"id": "shop", "url": hook, "description": f"Shop {MARKUP}"})
        for id_, body in (("order-1", {"key": "1", "body": {"item": MARKUP}}), ("order-2", None)):
            retry = {"attempts_max": 1}
            timer = {"id": id_, "endpoint": "shop", "delay_ms": 0, "body": body, "retry": retry}
            ask(server, "timers", timer)
        path = ask(server, "endpoints/shop/portal")["path"]
        with launched() as browser:
            yield Portal(server, browser, path)


def open_page(portal: Portal, page: Any) -> None:
    page.goto(portal.server.url + portal.path)
    page.get_by_role("heading", level=1, name="Shop").wait_for()
    page.get_by_role("row", name=re.compile("order-1.*succeeded")).first.wait_for()
    page.get_by_role("row", name=re.compile("order-2.*failed")).wait_for()


def test_the_owner_sees_calls_rotates_the_secret_tests_and_resends(portal: Portal) -> None:
    with visiting(portal.browser) as page:
        open_page(portal, page)
        assert "token" not in page.url  # nothing of it is left in the history
        row = page.get_by_role("row", name=re.compile("order-1"))
        row.get_by_role("button", name="Details").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_text("Attempt 1: succeeded").wait_for()
        assert MARKUP in dialog.get_by_label("Body").inner_text()
        dialog.get_by_role("button", name="Close").click()
        page.get_by_role("button", name="Show secret").click()
        page.locator(".secrets li").first.wait_for()
        assert page.locator(".secrets li").count() == 1
        page.get_by_role("button", name="Rotate secret").click()
        page.get_by_role("dialog").get_by_role("button", name="Rotate secret").click()
        page.locator(".secrets li").nth(1).wait_for()
        row.get_by_role("button", name="Resend").click()
        page.get_by_role("row", name=re.compile(r"order-1 \(resent\)")).wait_for()
        page.get_by_role("button", name="Send test call").click()
        page.get_by_role("row").nth(3).wait_for()
        page.get_by_label("State").select_option("succeeded")
        page.get_by_role("row", name=re.compile("order-2")).wait_for(state="detached")
        page.reload()  # the link works until it expires
        page.get_by_role("heading", level=1, name="Shop").wait_for()


@pytest.mark.parametrize(("scheme", "width"), [*product(("light", "dark"), (1280, 390))])
def test_the_portal_is_there_for_everyone(
    portal: Portal, tmp_path: Path, scheme: Any, width: int
) -> None:
    size = {"width": width, "height": 844}
    with visiting(portal.browser, viewport=size, color_scheme=scheme) as page:
        open_page(portal, page)
        page.get_by_role("button", name="Show secret").click()
        page.locator(".secrets li").first.wait_for()
        assert grievances(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for word in ("succeeded", "Details", "Resend"):  # not broken into two lines
            found = page.get_by_role("table").get_by_text(word, exact=True).first
            count = "(one) => { const r = document.createRange(); r.selectNodeContents(one);"
            assert found.evaluate(f"{count} return r.getClientRects().length; }}") == 1, word
        page.screenshot(path=tmp_path / "portal.png", full_page=True)
        page.get_by_role("button", name="Details").first.click()
        page.get_by_role("dialog").wait_for()
        assert grievances(page) == []


def test_another_link_in_the_same_tab_shows_its_endpoint(portal: Portal) -> None:
    hook = f"{portal.server.url}/v1/inbox/hooks"
    portal.ask("endpoints", {"id": "other", "url": hook, "description": "Other"})
    path = portal.ask("endpoints/other/portal")["path"]
    with visiting(portal.browser) as page:
        open_page(portal, page)
        page.goto(portal.server.url + path)
        page.get_by_role("heading", level=1, name="Other").wait_for()
        page.get_by_text("No calls in the last week.").wait_for()
        with page.expect_response(re.compile("/v1/endpoints/other/deliveries")):
            pass  # the page asks again, and for no other endpoint
        assert page.get_by_role("heading", level=1).inner_text() == "Other"


def test_a_link_that_is_not_valid_is_explained(portal: Portal) -> None:
    with visiting(portal.browser, forgive="401") as page:
        page.goto(f"{portal.server.url}{portal.path}0")
        page.get_by_role("heading", name="Link not valid").wait_for()
        assert grievances(page) == []
    with visiting(portal.browser) as page:
        page.goto(f"{portal.server.url}/portal")
        page.get_by_role("heading", name="Link not valid").wait_for()
