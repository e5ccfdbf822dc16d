"""The demonstration, whole: its page in a real browser, and what it says of itself is so."""

import re
import shlex
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from apps.demo.storm import Plan
from onceward import cli
from tests.apps.demo.running import Demo, Shown, is_there, staged
from tests.browser import grievances, launched, visiting
from tests.console import blocks, commands, printed
from tests.server_process import ROOT
from tests.tabs import LOST

pytestmark = pytest.mark.timeout(240)  # for a browser and many processes on a busy machine

DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
GUIDE = ROOT / "docs" / "demo.md"
NUMBER = re.compile(r"[1-9]")
# The state, once nothing is under way.
SETTLED = """async () => {
    for (;;) {
        const state = await (await fetch("/demo/state")).json();
        if (state.waiting + state.orders.under_way + state.timers.under_way === 0) return state;
        await new Promise((resolve) => setTimeout(resolve, 200));
    }
}"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    with staged(tmp_path_factory.mktemp("demo"), Plan(applications=10)) as shown:
        yield shown


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


def figure(page: Any, name: str) -> int:
    return int(page.locator(f"#{name}").inner_text().replace(",", ""))


def grows(page: Any, name: str) -> None:
    """Wait until a figure is larger than it is now."""
    page.wait_for_function(
        "([id, old]) => Number(document.getElementById(id).textContent.replace(',', '')) > old",
        arg=[name, figure(page, name)],
    )


def all_is_well(page: Any) -> None:
    page.get_by_role("heading", name="Nothing lost, nothing doubled").wait_for()
    for kind in ("orders", "timers"):
        assert (figure(page, f"{kind}-lost"), figure(page, f"{kind}-doubled")) == (0, 0)


def test_the_page_is_there_for_everyone(demo: Shown, browser: Any) -> None:
    with visiting(browser) as page:
        page.goto(demo.url)
        page.get_by_role("heading", level=1, name="Once. In order. On time.").wait_for()
        page.get_by_text("The server is running", exact=True).wait_for()
        page.locator("#orders-in_effect").get_by_text(NUMBER).wait_for()
        page.locator("#timers-in_effect").get_by_text(NUMBER).wait_for()
        page.locator("#board i").first.wait_for()  # what others do is seen, too
        page.locator("#table [data-mark=X]").first.wait_for()
        for size, scheme in product((DESKTOP, PHONE), ("light", "dark")):
            page.set_viewport_size(size)
            page.emulate_media(color_scheme=scheme)
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, "it is wider than the screen"
            assert grievances(page) == [], (size, scheme)
        all_is_well(page)


def test_five_systems_are_reached_from_it(demo: Shown, browser: Any) -> None:
    with visiting(browser, viewport=PHONE, color_scheme="dark") as page:
        page.goto(demo.url)

        def follow(name: str) -> Any:
            with page.context.expect_page() as opened:
                page.get_by_role("link", name=name, exact=True).click()
            opened.value.wait_for_load_state()
            opened.value.get_by_role("heading", level=1).wait_for()
            assert grievances(opened.value) == [], name
            return opened.value

        ann, ben = follow("Play as Ann"), follow("Play as Ben")
        for player in (ann, ben):
            player.get_by_role("button", name="Join the table").click()
        ann.get_by_text("Your turn. You play X.").wait_for()
        ann.get_by_role("button", name="row 2, column 2: empty").click()
        ben.get_by_role("button", name="row 2, column 2: X").wait_for()
        for player in (ann, ben):
            player.get_by_role("button", name="Leave").click()
            player.get_by_role("button", name="Join the table").wait_for()
            player.close()

        phones = follow("Open two phones")
        first = phones.locator(".phone").first
        first.get_by_label("Text").fill("nick Ann")
        first.get_by_role("button", name="Send").click()
        first.get_by_text("You are Ann.").wait_for()
        phones.close()

        board = follow("Open the board")
        board.get_by_text("Drag me.").first.wait_for()
        board.close()
        follow("Play on a page").close()

        page.get_by_role("button", name="Console").click()
        page.get_by_role("heading", level=1, name="Overview").wait_for()


def test_a_timer_arrives_on_the_page_and_the_storm_blows_over(demo: Shown, browser: Any) -> None:
    with visiting(browser, forgive="422") as page:
        page.goto(demo.url)
        page.get_by_role("button", name="Start the storm").click()
        going_on = page.locator(
            "body", has=page.get_by_role("progressbar", name="messages acknowledged")
        )
        going_on.get_by_role("button", name="Start the storm", disabled=True).wait_for()
        status, problem = demo.ask({"what": "storm"}, onceward_demo=demo.state()["token"])
        assert (status, problem["detail"]) == (409, "the storm is already running")

        page.get_by_role("spinbutton", name="seconds").fill("0.5")
        page.get_by_role("button", name="Create timer").click()
        late = page.locator("#yours .came").first
        late.wait_for()
        assert re.fullmatch(r"\d+\.\d ms late", late.inner_text())
        # What the browser would refuse, the server refuses, too.
        page.locator("#timer").evaluate("form => form.noValidate = true")
        page.get_by_role("spinbutton", name="seconds").fill("61")
        page.get_by_role("button", name="Create timer").click()
        page.locator("#timer-wrong").get_by_text("delay_s").wait_for()

        page.get_by_text("10 pulls for 10 applications").wait_for(timeout=90_000)
        page.get_by_text("100 of 100").wait_for()
        assert figure(page, "storm-stopped") == 90
        assert (figure(page, "storm-kills"), figure(page, "storm-most")) == (1, 1)
        page.locator("#worker-said").get_by_text("2 of 2 running").wait_for()
        assert grievances(page) == []


def test_what_is_killed_comes_back_and_nothing_is_lost(demo: Shown, browser: Any) -> None:
    """And when the traffic is switched off, all that was acknowledged has taken effect."""
    with visiting(browser, forgive=LOST) as page:
        page.goto(demo.url)
        page.get_by_text("The server is running", exact=True).wait_for()
        before = demo.state()["machines"]
        there = demo.crew()
        page.get_by_role("button", name="Send everything ten times").click()
        page.get_by_text("Every message is sent ten times.").wait_for()
        grows(page, "orders-stopped")

        page.get_by_role("button", name="Kill a worker").click()
        page.get_by_text(re.compile(r"Killed worker-\d")).first.wait_for()
        grows(page, "orders-in_effect")

        page.get_by_role("button", name="Kill the server").click()
        away = page.locator("body", has_text="The server has been down")
        away.get_by_role("button", name="Kill the server", disabled=True).wait_for()
        page.get_by_text(re.compile("The server is back; it was down for")).wait_for(timeout=60_000)
        page.locator("#events").get_by_text(re.compile(r"back after \d+\.\d\d s")).wait_for()
        grows(page, "orders-acknowledged")
        grows(page, "orders-in_effect")
        grows(page, "timers-in_effect")
        assert grievances(page) == []
        page.get_by_role("button", name="Send everything ten times").click()
        all_is_well(page)

        page.get_by_role("switch", name="Live traffic").click()
        page.get_by_text("Traffic is off.").wait_for()
        settled = page.evaluate(SETTLED)
        for counts in (settled["orders"], settled["timers"]):
            assert counts["acknowledged"] == counts["in_effect"] > 0
            assert (counts["lost"], counts["doubled"]) == (0, 0)
        page.get_by_role("switch", name="Live traffic").click()
        page.get_by_text("Traffic is on.").wait_for()
        grows(page, "orders-acknowledged")
        page.locator("#worker-said").get_by_text("2 of 2 running").wait_for()
    after = demo.state()["machines"]
    assert after["server_kills"] == before["server_kills"] + 1
    assert after["server_starts"] == before["server_starts"] + 1
    assert after["worker_kills"] >= before["worker_kills"] + 1
    now = demo.crew()
    assert sorted(now.values()) == sorted(there.values()), "each is there again"
    assert len(now.keys() - there.keys()) >= 2, "and is another process"


def test_an_order_that_makes_no_sense_or_comes_from_elsewhere_is_refused(demo: Shown) -> None:
    before = demo.state()
    token = {"onceward_demo": before["token"]}
    for body, status, said in (
        (b"{", 400, "JSON"),
        ({"what": "sofa"}, 422, "what"),
        ({}, 422, "what"),
        ({"what": "timer", "delay_s": 0}, 422, "delay_s"),
        ({"what": "timer", "delay_s": "soon"}, 422, "delay_s"),
        ({"what": "plug", "why": "fun"}, 422, "why"),
        (b'{"what": "plug"' + b" " * 2_000 + b"}", 413, "bytes"),
    ):
        answered, problem = demo.ask(body, **token)
        assert (answered, said in problem["detail"]) == (status, True), problem
    for path, headers in product(
        ("/demo/do", "/demo/console"),
        (
            {"Origin": "http://elsewhere.example"},
            {"Sec_Fetch_Site": "cross-site"},
            {"Host": "elsewhere.example"},
        ),
    ):
        assert demo.ask({"what": "plug"}, path, **headers, **token)[0] in (403, 421)
    for headers in ({}, {"onceward_demo": "guess"}):
        status, problem = demo.ask({"what": "plug"}, **headers)
        assert (status, problem["code"]) == (401, "no_credentials")
    assert demo.state()["machines"] == before["machines"], "nothing was broken"


def test_nothing_on_the_page_is_markup_or_comes_from_elsewhere(demo: Shown) -> None:
    for path in ("/", "/demo/demo.js", "/demo/demo.css"):
        with urlopen(demo.url + path) as answer:
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "require-trusted-types-for 'script'" in policy
            assert "unsafe" not in policy
            text = answer.read().decode()
            assert not re.search(r"<script>|<style|\sstyle=|\son\w+=|innerHTML", text)
    assert demo.ask({}, "/demo/../settings.py")[0] in (404, 405)


def test_what_the_guide_says_to_try_works(
    demo: Shown, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ONCEWARD_SERVER", demo.url)
    blocks_ = [block for block in blocks(GUIDE, "console") if "$ onceward" in block]
    tried = [one for block in blocks_ for one in commands(block)]
    assert len(tried) == 4
    for command, said in tried:
        with ThreadPoolExecutor(1) as thread:  # this one belongs to the browser
            assert thread.submit(cli.main, shlex.split(command)[1:]).result() == 0
        assert printed(capsys.readouterr().out.splitlines(), said), command


def test_a_link_opens_the_console_also_after_a_restart_and_ctrl_c_ends_everything(
    tmp_path: Path,
) -> None:
    with Demo(tmp_path, "--folder", "kept", "--no-traffic") as demo:
        pids = list(demo.crew())
        old = {"link": demo.console.partition("=")[2]}
        assert [demo.ask(old, "/v1/session")[0] for _ in range(2)] == [200, 401], "it counts once"
        demo.ask({"what": "plug"}, onceward_demo=demo.state()["token"])
        demo.hear_of_restart()
        new = {"link": demo.console.partition("=")[2]}
        assert [demo.ask(link, "/v1/session")[0] for link in (old, new, new)] == [401, 200, 401]
        pids += demo.crew()
        said, code = demo.stop(signal.SIGINT)
    assert code == 0
    assert said == ("Stopped: 0 acknowledged, 0 took effect, 0 in progress, 0 lost, 0 doubled\n")
    assert [pid for pid in pids if is_there(pid)] == []
    assert (tmp_path / "kept" / "demo.db").exists()
    assert "Traceback" not in demo.log.read_text()
