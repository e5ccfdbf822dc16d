"""The console in a real browser, with a shop behind it that has something of everything."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from onceward.client import Client
from onceward.web.auth import digest_of
from tests.browser import grievances, launched, visiting
from tests.server_process import ServerProcess
from tests.web.showroom import MARKUP, SCRIPT, Shop, open_shop
from tests.web.watching import growth

pytestmark = pytest.mark.timeout(240)  # for a browser on a busy machine

DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
PAGES = {
    "": "Overview",
    "queues": "Queues",
    "queues/orders": "orders",
    "queues/orders?tab=failed": "orders",
    "queues/parcels?tab=senders": "parcels",
    "queues/parcels?tab=settings": "parcels",
    "timers": "Timers",
    "timers?tab=all": "Timers",
    "timers?tab=new": "Timers",
    "endpoints": "Timers",
    "timers/newsletter": "newsletter",
    "rooms": "Rooms",
    "rooms/warehouse": "warehouse",
    "tables": "Tables",
    "tables/canteen": "canteen",
    "locks": "Locks",
    "locks/label-printer": "Locks",
    "settings": "Settings",
}


class Console:
    """A browser that is signed in, and the server behind it."""

    def __init__(self, server: ServerProcess, browser: Any, link: str, state: Any) -> None:
        self.server = server
        self.browser = browser
        self.link = link
        self.state = state

    def visit(self, forgive: str = "never", **options: Any) -> Any:
        return visiting(self.browser, forgive, storage_state=self.state, **options)

    def open(self, page: Any, path: str, heading: str | None = None) -> None:
        """Go to a page of the console, and wait until it is there and has been filled."""
        page.goto(f"{self.server.url}/#/{path}")
        page.get_by_role("heading", level=1, name=heading).wait_for()
        page.locator(".light").get_by_text("Live").wait_for()

    def get(self, path: str) -> Any:
        with urlopen(f"{self.server.url}/v1/{path}") as answer:
            return json.load(answer)

    def until(self, page: Any, path: str, holds: Callable[[Any], bool]) -> Any:
        """What the server answers, once that is so: a page may show what was before."""
        for _ in range(1_200):
            answer = self.get(path)
            if holds(answer):
                return answer
            page.wait_for_timeout(50)
        raise AssertionError(f"{path} is still {answer}")

    def post(self, path: str, body: Any) -> Any:
        kind = {"Content-Type": "application/json"}
        asked = Request(f"{self.server.url}/v1/{path}", json.dumps(body).encode(), kind)
        with urlopen(asked) as answer:
            assert answer.status in (200, 202)
            return json.load(answer)


async def fill(server: ServerProcess) -> None:
    async with Client(server.url) as client:
        await Shop(server).fill(client)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with open_shop(tmp_path_factory.mktemp("shop")) as server:
        link = server.console_link()
        asyncio.run(fill(server))
        with launched() as browser:
            with visiting(browser) as page:
                page.goto(link)
                page.get_by_role("heading", level=1, name="Overview").wait_for()
                assert "enter" not in page.url  # nothing of it is left in the history
                state = page.context.storage_state()
            yield Console(server, browser, link, state)


def test_every_page_is_there_for_everyone(console: Console) -> None:
    with console.visit() as page:
        for number, (path, heading) in enumerate(PAGES.items()):
            console.open(page, path, heading)
            if not path:
                page.locator(".plot .value").first.get_by_text(re.compile(r"\d")).wait_for()
            for size, scheme in product((DESKTOP, PHONE), ("light", "dark")):
                page.set_viewport_size(size)
                page.emulate_media(color_scheme=scheme)
                wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, f"{path} is wider than the screen"
                # Pages have their parts in common: so each is looked at closely once, by turns.
                if (size, scheme) == ((DESKTOP, "light"), (PHONE, "dark"))[number % 2]:
                    assert grievances(page) == [], (path, size, scheme)
            assert page.title().endswith("· Onceward")


def test_the_link_counts_once_and_who_comes_late_is_told_what_to_do(console: Console) -> None:
    with visiting(console.browser, "401") as page:
        page.goto(console.link)
        page.get_by_role("alert").get_by_text("already used").wait_for()
        page.get_by_text("onceward console", exact=True).wait_for()
    with visiting(console.browser, "401") as page:
        page.goto(console.server.url)
        page.get_by_text("runs in dev mode").wait_for()


def test_stored_text_never_becomes_markup(console: Console) -> None:
    [job] = console.get(f"jobs?key={quote(SCRIPT)}")["jobs"]
    with console.visit() as page:
        for path in (
            f"jobs/{job['id']}",
            f"queues?text={quote(SCRIPT)}",
            "queues/mail?tab=failed",
            "rooms",
            f"rooms/{quote(MARKUP, safe='')}",
            "rooms/warehouse",
            "timers",
            f"timers/{quote(MARKUP, safe='')}",
        ):
            console.open(page, path)
            wanted = MARKUP if "rooms" in path or "timers" in path else SCRIPT
            wanted = SCRIPT if path == "rooms/warehouse" else wanted
            page.locator("main").get_by_text(wanted).first.wait_for()
            assert page.locator("main script, main b, main [onmouseover]").count() == 0
            assert "taken over" not in page.title().split("·")[-1]


def test_a_jobs_story_leads_to_what_it_has_caused(console: Console) -> None:
    with console.visit() as page:
        console.open(page, "queues")
        page.get_by_label("Find a job").fill("order-1042")
        page.get_by_role("button", name="Search").click()
        page.get_by_text("Key order-1042").wait_for()
        page.get_by_role("link", name="order-1042").click()
        page.get_by_role("heading", level=1, name="order-1042").wait_for()
        story = page.locator(".story")
        for text in ("Accepted and stored", "Succeeded in attempt 1", "charge card", "warehouse"):
            story.get_by_text(text).first.wait_for()
        story.get_by_role("link", name="of mail").click()
        page.locator(".story").get_by_text("Caused by").wait_for()
        page.locator(".story").get_by_role("link", name="of orders").click()
        page.get_by_role("heading", level=1, name="order-1042").wait_for()
        assert page.evaluate("document.activeElement.tagName") == "H1"
        assert grievances(page) == []
        page.locator(".story").get_by_role("link", name="ask order-1042").click()
        page.get_by_text("sends to mail").wait_for()


def test_tags_are_shown_in_lists_and_with_their_job(console: Console) -> None:
    with console.visit() as page:
        console.open(page, "queues/parcels", "parcels")
        row = page.get_by_role("row").filter(has_text="parcel-8")
        for tag in ("fragile", MARKUP):
            row.get_by_text(tag, exact=True).wait_for()
        row.get_by_role("link", name="parcel-8").click()
        page.get_by_role("heading", level=1, name="parcel-8").wait_for()
        page.locator(".facts").get_by_text(f"fragile, {MARKUP}").wait_for()
        assert grievances(page) == []


def test_who_retries_and_dies_is_told_of_and_dead_letters_are_redriven(console: Console) -> None:
    with console.visit() as page:
        [vase] = console.get("jobs?key=order-1045")["jobs"]
        console.open(page, f"jobs/{vase['id']}", "order-1045")
        page.get_by_text("Attempt 1 failed").wait_for()
        page.get_by_text("the warehouse did not answer").first.wait_for()
        died = "jobs?state=failed&queue=orders"
        found = console.until(page, died, lambda found: len(found["jobs"]) == 4)
        before = {job["id"]: job["ended_ms"] for job in found["jobs"]}
        console.open(page, "queues/orders?tab=failed", "orders")
        page.locator(".card .reason").get_by_text("all sofas are sold").nth(3).wait_for()
        page.get_by_label("Reason contains").fill("sofas")
        page.get_by_role("button", name="Redrive all").click()
        page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
        page.get_by_text("Retrying 4 jobs").first.wait_for()
        # They fail again: sofas are still sold.
        failed = console.until(
            page,
            died,
            lambda found: (
                len(found["jobs"]) == 4
                and all(job["ended_ms"] > before[job["id"]] for job in found["jobs"])
            ),
        )
        assert {job["attempt"] for job in failed["jobs"]} == {1}
        page.locator(".card .reason").get_by_text("all sofas are sold").nth(3).wait_for()


def test_a_failure_shows_its_traceback_and_a_retry_its_caller(console: Console) -> None:
    trace = f'Traceback:\n  File "mail.py", line 7, in send\nValueError: {MARKUP}'
    about = {"type": "ValueError", "traceback": trace}
    console.post("inbox/console-failures", {"key": "broken", "body": 1})
    [job] = console.post("queues/console-failures/claim", {"wait_ms": 5_000})["jobs"]
    path = f"jobs/{job['id']}"
    said = {"token": job["token"], "reason": "ValueError", "final": True, **about}
    console.post(f"{path}/fail", said)
    with console.visit() as page:
        console.open(page, path, "broken")
        page.locator(".story summary").get_by_text("Traceback").click()
        shown = page.get_by_label("Traceback of attempt 1")
        assert shown.text_content() == trace
        assert grievances(page) == []
        page.get_by_role("button", name="Retry job").click()
        page.locator(".story li").filter(has_text="Retried").get_by_text("by user:").wait_for()
        page.get_by_role("button", name="Cancel job").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()
        last = page.locator(".story li").filter(has_text="The job is cancelled")
        last.get_by_text("by user:", exact=False).last.wait_for()


def test_a_doubt_is_settled_by_a_person(console: Console) -> None:
    with console.visit("422") as page:
        console.open(page, "queues/orders?tab=failed", "orders")
        page.get_by_role("link", name="Settle").click()
        page.get_by_role("heading", name="Was “charge card” done?").wait_for()
        assert grievances(page) == []
        page.get_by_label("its result as JSON").fill("{amount")
        page.get_by_role("button", name="Mark as done").click()
        page.get_by_text("The result is not JSON").wait_for()
        page.get_by_label("its result as JSON").fill('{"amount": 4900}')
        page.get_by_role("button", name="Mark as done").click()
        page.locator(".story").get_by_text("Succeeded in attempt").wait_for()
        assert '"paid": 4900' in page.get_by_label("Result", exact=True).inner_text()


def test_a_waiting_job_shows_its_children_and_receives_an_event(console: Console) -> None:
    console.post("inbox/returns", {"key": "return-7", "body": {"items": ["lamp", MARKUP]}})
    [job] = console.get("jobs?key=return-7")["jobs"]
    path = f"jobs/{job['id']}"
    with console.visit("422") as page:
        console.open(page, path, "return-7")
        page.locator(".facts").get_by_text("its children (call 1)").wait_for()
        rows = page.get_by_role("region", name="Children").get_by_role("row")
        assert rows.filter(has_text="queued").count() == 2
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert grievances(page) == []
        rows.get_by_role("link").first.click()
        page.get_by_label("Body", exact=True).get_by_text("lamp").wait_for()
        page.locator(".facts").get_by_role("link", name=f"…{job['id'][-10:]}").click()
        page.get_by_role("heading", level=1, name="return-7").wait_for()
        for _ in range(2):
            [child] = console.post("queues/inspections/claim", {"wait_ms": 5_000})["jobs"]
            done = {"token": child["token"], "result": "as new"}
            console.post(f"jobs/{child['id']}/complete", done)
        page.get_by_role("heading", name="Waits for the event “approval”").wait_for()
        page.locator(".story li").filter(has_text="Waits for the event").first.wait_for()
        assert page.get_by_text("in doubt").count() == 0
        for size, scheme in product((DESKTOP, PHONE), ("light", "dark")):
            page.set_viewport_size(size)
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            assert grievances(page) == []
        page.get_by_label("Its value as JSON").fill("{ok")
        page.get_by_role("button", name="Send event").click()
        page.get_by_text("The value is not JSON").wait_for()
        page.get_by_label("Its value as JSON").fill('{"ok": true}')
        page.get_by_role("button", name="Send event").click()
        page.locator(".story").get_by_text("Succeeded in attempt").wait_for()
        assert '"ok": true' in page.get_by_label("Result", exact=True).inner_text()
        page.get_by_role("button", name="Send event").wait_for(state="detached")


def test_a_job_shows_its_timeline_and_its_children_by_state(console: Console) -> None:
    body = {"pages": 25, "takes_s": 0.02}
    id_ = console.post("inbox/catalogues", {"key": "catalogue-7", "body": body})["id"]
    with console.visit() as page:
        console.open(page, f"jobs/{id_}", "catalogue-7")
        page.get_by_role("heading", name="Waits for the event “approval”").wait_for()
        bars = page.get_by_role("list", name="Timeline")
        for text in ("Attempt 1, failed", "Step “read the layout”", "Children of call 1"):
            bars.get_by_text(text).wait_for()
        assert bars.get_by_role("listitem").last.inner_text().startswith("Event “approval”")
        # Rows open with the keyboard, and stay open while the page refreshes.
        bars.locator("summary").first.focus()
        page.keyboard.press("Enter")
        for _ in range(2):
            with page.expect_response("**/history"):
                pass
        bars.get_by_text("From ").first.wait_for()
        page.locator(".facts").get_by_text("the event “approval”, at the latest until").wait_for()
        children = page.get_by_role("group", name="Children by state")
        children.get_by_role("button", name="All 25").wait_for()
        rows = page.get_by_role("region", name="Children").get_by_role("row")
        assert "page-7.jpg is not a picture" in rows.nth(1).inner_text()
        page.get_by_role("button", name="Next children").click()
        rows.nth(1 + 5).wait_for(state="detached")  # the page before had more
        assert rows.count() == 1 + 5
        children.get_by_role("button", name="Failed 1").click()
        page.get_by_role("button", name="Previous children").wait_for(state="hidden")
        assert rows.count() == 1 + 1
        for size, scheme in product((DESKTOP, PHONE), ("light", "dark")):
            page.set_viewport_size(size)
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            assert grievances(page) == []
        page.get_by_role("button", name="Send event").click()
        page.locator(".story").get_by_text("Succeeded in attempt").wait_for()
        bars.get_by_text("Attempt 2, succeeded").wait_for()
        children.get_by_role("button", name="All 25").click()
        page.reload()
        children.get_by_role("button", name="Succeeded 24").wait_for()
        rows.nth(1).get_by_role("link").click()
        page.locator(".story").get_by_text("Failed permanently").wait_for()
        bars.get_by_text("Step “resize”").wait_for()


def test_the_progress_and_the_stream_of_a_job_are_shown_while_it_runs(console: Console) -> None:
    console.post("inbox/novels", {"key": "novel-7", "body": 1})
    [job] = console.post("queues/novels/claim", {"wait_ms": 5_000})["jobs"]
    path, token = f"jobs/{job['id']}", {"token": job["token"]}
    report = {"progress": 0.4, "text": "page 4", "chunks": ["Once ", MARKUP, {"a": 1}]}
    console.post(f"{path}/output", {**token, **report})
    with console.visit("422") as page:
        console.open(page, path, "novel-7")
        page.locator(".facts").get_by_text("40% page 4").wait_for()
        bar = page.get_by_label("Progress", exact=True)
        assert bar.evaluate("bar => bar.position") == 0.4
        stream = page.get_by_label("Stream", exact=True)
        stream.filter(has_text="Once").wait_for()
        assert stream.inner_text() == f'Once {MARKUP}{{\n  "a": 1\n}}\n'
        for size, scheme in product((DESKTOP, PHONE), ("light", "dark")):
            page.set_viewport_size(size)
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            assert grievances(page) == []
        console.post(f"{path}/output", {**token, "progress": 0.5, "chunks": ["more"], "first": 3})
        page.locator(".facts").get_by_text("50%").wait_for()
        stream.filter(has_text=re.compile(r"\}\s*more$")).wait_for()
        console.post(f"{path}/fail", {**token, "reason": "no ink", "retry_after_ms": 0})
        [job] = console.post("queues/novels/claim", {"wait_ms": 5_000})["jobs"]
        console.post(f"{path}/output", {"token": job["token"], "chunks": ["again"]})
        stream.filter(has_text=re.compile("^again$")).wait_for()
        console.open(page, "queues/novels", "novels")
        page.get_by_role("row").filter(has_text="novel-7").get_by_text("50%").wait_for()
        console.post(f"{path}/complete", {"token": job["token"]})


def test_a_queue_is_paused_and_goes_on(console: Console) -> None:
    with console.visit() as page:
        console.open(page, "queues/parcels", "parcels")
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Resume").wait_for()
        assert console.get("queues/parcels")["settings"].get("paused")
        page.get_by_role("button", name="Resume").click()
        page.get_by_role("button", name="Pause").wait_for()
        assert not console.get("queues/parcels")["settings"].get("paused")


def test_a_timer_is_set_watched_fired_and_cancelled(console: Console) -> None:
    with console.visit("4(00|22)") as page:
        console.open(page, "timers?tab=new", "Timers")
        page.get_by_label("Queue, URL or endpoint").fill("parcels")
        page.get_by_label("Id (optional)").fill("tea")
        page.get_by_label("Body, as JSON").fill('{"cup": 1}')
        page.get_by_label("Seconds, or cron").fill("x")
        page.get_by_role("button", name="Create timer").click()
        page.get_by_role("alert").get_by_text("a number of seconds").wait_for()
        page.get_by_label("Seconds, or cron").fill("500")
        page.get_by_role("button", name="Create timer").click()
        page.get_by_role("heading", level=1, name="tea").wait_for()
        page.get_by_text(re.compile(r"^[5-8]:\d\d$")).wait_for()
        page.get_by_role("button", name="Fire now").click()
        page.locator(".story").get_by_text("Firing 1").wait_for()
        console.open(page, "timers/close-shop", "close-shop")
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel timer").click()
        page.locator(".head .chip").get_by_text("cancelled").wait_for()


def test_a_call_that_failed_is_seen_and_sent_again(console: Console) -> None:
    with console.visit() as page:
        console.open(page, "timers/carrier-pickup", "carrier-pickup")
        page.get_by_text("refused the connection").wait_for()
        page.get_by_role("button", name="Resend").click()
        page.get_by_text("Resent with the same id").wait_for()
        page.get_by_text("Attempt 1: failed").nth(1).wait_for()
        console.open(page, "endpoints", "Timers")
        page.get_by_text("failing").wait_for()
        page.get_by_role("cell", name="0.0 %").wait_for()


def test_a_paused_receiver_is_on_the_overview(console: Console) -> None:
    with console.visit() as page:
        console.open(page, "", "Overview")
        attention = page.get_by_role("region", name="Needs attention")
        row = attention.get_by_text("Calls to http://127.0.0.1:9 have been paused")
        row.get_by_text("refused the connection").wait_for()
        row.get_by_text(re.compile(r"Next call in \d+ min")).wait_for()
        row.click()
        page.get_by_role("heading", level=1, name="Timers").wait_for()


def test_a_room_is_seen_as_it_was_and_deleted(console: Console) -> None:
    with console.visit("404") as page:
        console.open(page, "rooms/warehouse", "warehouse")
        page.get_by_role("region", name="Map stock").get_by_text("4997").wait_for()
        slider = page.get_by_label("History")
        slider.focus()
        slider.press("Home")
        page.get_by_text("as it was at step 0").wait_for()
        page.get_by_text("The room is empty.").wait_for()
        slider.press("ArrowRight")
        page.get_by_role("region", name="Map stock").get_by_text("5000").wait_for()
        page.get_by_role("button", name="Live").click()
        page.get_by_role("region", name="Map stock").get_by_text("4997").wait_for()
        console.post("rooms", {"id": "old"})
        console.open(page, "rooms/old", "old")
        page.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete room").click()
        page.get_by_role("heading", level=1, name="Rooms").wait_for()
        assert "old" not in [room["id"] for room in console.get("rooms")["rooms"]]


def test_a_table_shows_who_sits_and_waits_and_the_last_game(console: Console) -> None:
    with console.visit() as page:
        console.open(page, "tables", "Tables")
        page.get_by_role("link", name="canteen").click()
        seats = page.get_by_role("region", name="Seats")
        seats.get_by_text("ben").wait_for()  # who has won stays
        page.get_by_label("Find user").fill("ann")
        page.get_by_role("button", name="Find").click()
        page.get_by_text("ann is waiting at position 1").wait_for()
        page.get_by_text("after move 6 of 6: ben wins").wait_for()
        slider = page.get_by_label("Replay")
        slider.focus()
        slider.press("Home")
        page.get_by_text("at the start").wait_for()
        page.get_by_label("State after the move").get_by_text('"left": 12').wait_for()
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Resume").wait_for()
        page.locator(".head .chip").get_by_text("paused").wait_for()


def test_holders_and_those_who_wait_are_seen(console: Console) -> None:
    with console.visit() as page:
        console.open(page, "locks/label-printer", "Locks")
        holders = page.get_by_role("region", name="Holders")
        holders.get_by_text("printer-worker-1").wait_for()
        waiting = page.get_by_role("region", name="Waiters, in order")
        waiting.get_by_text("printer-worker-2").wait_for()


def test_a_key_is_shown_once_and_can_be_removed(console: Console) -> None:
    with console.visit("422") as page:
        console.open(page, "settings", "Settings")
        page.get_by_label("Caller").fill("billing")
        page.get_by_label("Scopes, one").fill("everything")
        page.get_by_role("button", name="Create key").click()
        page.get_by_role("alert").get_by_text("is not a scope").wait_for()
        page.get_by_label("Scopes, one").fill("send:invoices.*\nlock:x all\n")
        page.get_by_role("button", name="Create key").click()
        key = page.locator(".secret").inner_text()
        assert key.startswith("ow_")
        assert grievances(page) == []
        page.reload()
        page.get_by_role("cell", name="billing", exact=True).wait_for()
        # A name with a space in it is one name.
        page.get_by_role("cell", name="send:invoices.*, lock:x all", exact=True).wait_for()
        assert key not in page.content()
        page.get_by_role("button", name="Remove").click()
        page.get_by_role("dialog").get_by_role("button", name="Remove key").click()
        page.get_by_text("No keys were created here").wait_for()


def test_it_is_used_by_keyboard_and_remembers_the_theme(console: Console) -> None:
    with console.visit(viewport=DESKTOP, color_scheme="light") as page:
        console.open(page, "", "Overview")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.get_by_role("link", name="Locks").focus()
        page.keyboard.press("Enter")
        page.get_by_role("heading", level=1, name="Locks").wait_for()
        here = page.get_by_role("link", name="Locks").get_attribute("aria-current")
        assert here == "page"
        ground = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(ground)
        for _ in ("light", "dark"):
            page.get_by_role("button", name="Theme").click()
        assert page.evaluate(ground) != light
        page.reload()
        page.get_by_role("button", name="Theme: dark").wait_for()


@pytest.mark.console
def test_a_page_that_is_watched_does_not_grow(console: Console) -> None:
    with console.visit() as page:
        console.open(page, "", "Overview")
        growth(page, 15)


def test_the_overview_goes_on_when_the_server_comes_back(console: Console) -> None:
    forgive = "net::ERR_|503"
    with console.visit(forgive) as page:
        console.open(page, "", "Overview")
        console.server.kill()
        page.get_by_text("Offline").wait_for()
        console.server.start()
        console.server.until_ready()
        page.get_by_text("Live", exact=True).wait_for()
        body = {"item": "desk", "order": "o", "customer": "a@b"}
        console.post("inbox/orders", {"body": body, "key": "late"})
        page.locator(".figures").get_by_text(re.compile(r"^\d")).first.wait_for()


def test_with_keys_one_signs_in_by_a_key_and_out(console: Console, tmp_path: Path) -> None:
    settings = tmp_path / "onceward.toml"
    keys = {"ann": "all", "bob": "manage:orders"}
    settings.write_text(
        "".join(
            f'[[keys]]\nname = "{name}"\nscopes = ["{scope}"]\n'
            f'digest = "{digest_of(f"ow_{name}")}"\n'
            for name, scope in keys.items()
        )
    )
    with ServerProcess(tmp_path) as server, visiting(console.browser, "40[13]") as page:
        assert server.console_link() == f"{server.url}/console"
        page.goto(server.url)
        field = page.get_by_label("API key or token")
        field.fill("ow_eve")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("alert").get_by_text("unknown API key").wait_for()
        assert grievances(page) == []
        field.fill("ow_bob")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", level=1, name="Overview").wait_for()
        assert "ow_bob" not in str(page.context.storage_state())
        page.goto(f"{server.url}/#/settings")
        page.get_by_text("require the scope all").wait_for()
        # A page of the same machine that has the cookie, and not the token, can do nothing.
        status = page.evaluate(
            "async () => (await fetch('/v1/queues/orders/pause', {method: 'POST'})).status"
        )
        assert status == 401
        page.get_by_role("button", name="Sign out").click()
        page.get_by_label("API key or token").wait_for()
        page.reload()
        page.get_by_label("API key or token").wait_for()
