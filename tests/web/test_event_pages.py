"""Links for events: a question that changes nothing, and a form that sends the event once."""

import asyncio
import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from onceward import limits
from onceward.app import App
from onceward.errors import AlreadyEnded, BadInput, NoSuchJob
from onceward.server_key import ServerKeys, new_key, parse_keys
from onceward.work.event_links import EventLink, sealed
from onceward.work.job import Job
from tests.browser import browsing, grievances
from tests.client.served import Served
from tests.schedule.cluster import virtual
from tests.web.asgi import Answer, AsgiCaller, Caller, serving, serving_to
from tests.work.apps import Apps

CHOICES = {"Approve": {"ok": True}, "Reject": {"ok": False}}
FORM = [("content-type", "application/x-www-form-urlencoded")]


def declare(apps: Apps, **options: Any) -> App:
    app = apps.make(**options)

    @app.handler("orders")
    async def order(job: Job) -> Any:
        return await job.wait_for("approval")

    return app


@asynccontextmanager
async def asking(**options: Any) -> AsyncIterator[tuple[Apps, App, Caller, str]]:
    """A server with a job that waits for an approval."""
    apps = Apps(shared=False)
    app = declare(apps, server_key=new_key())
    async with serving(app, **options) as caller:
        id_ = (await app.send("orders", None)).id
        await apps.sleep(1)
        yield apps, app, caller, id_


async def press(caller: Caller, link: str, choice: Any = 0) -> Answer:
    return await caller("POST", link, raw=f"choice={choice}".encode(), headers=FORM)


def title(answer: Answer) -> str:
    """The heading of a page, which is complete, plain and guarded."""
    headers = answer.headers
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert "form-action 'self'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "script-src 'self'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    [found] = re.findall("<h1>(.*?)</h1>", answer.body.decode())
    return html.unescape(found)


@virtual
async def test_opening_a_link_decides_nothing_and_pressing_a_button_does_so_once() -> None:
    async with asking() as (apps, app, caller, id_):
        link = await app.event_link(id_, "approval", choices=CHOICES, text="Ship <order> 7?")
        for method in ("GET", "HEAD", "GET"):
            answer = await caller(method, link)
            assert answer.status == 200
        assert title(answer) == "Ship <order> 7?"
        assert "<order>" not in answer.body.decode()
        assert re.findall('value="(.)">(.*?)<', answer.body.decode()) == [
            ("0", "Approve"),
            ("1", "Reject"),
        ]
        await apps.sleep(1)
        assert [key for key in apps.records if "event" in "#".join(key)] == []
        assert (await app.job(id_)).waits == "event approval"
        answers = await asyncio.gather(*[press(caller, link, 1) for _ in range(3)])
        assert {title(answer) for answer in answers} == {"Thank you"}
        assert "Your answer was recorded: Reject." in answers[0].body.decode()
        assert await app.result(id_, timeout_s=10) == {"ok": False}
        for used in (await press(caller, link, 0), await caller("GET", link)):
            assert (used.status, title(used)) == (410, "This link was already used")
            assert "The recorded answer is: Reject." in used.body.decode()
        assert title(await press(caller, link, 1)) == "Thank you"
    assert apps.problems == []


@virtual
async def test_pages_have_no_script_and_cannot_be_framed() -> None:
    async with asking() as (_, app, caller, id_):
        links = [await app.event_link(id_, "approval", 1), "/event-links/x"]
        for link in links:
            for answer in (await caller("GET", link), await press(caller, link)):
                assert title(answer)
                assert "<script" not in answer.body.decode()
                assert " style=" not in answer.body.decode()


@virtual
async def test_concurrent_answers_send_one_event() -> None:
    async with asking() as (_, app, caller, id_):
        await app.emit(id_, "other")
        link = await app.event_link(id_, "approval", choices={str(n): n for n in range(10)})
        answers = await asyncio.gather(*[press(caller, link, n) for n in range(10)])
        assert sorted(title(answer) for answer in answers)[0] == "Thank you"
        assert [answer.status for answer in answers].count(200) == 1
        chosen = [answer.status for answer in answers].index(200)
        assert await app.result(id_, timeout_s=10) == chosen


@virtual
async def test_several_links_of_a_job_are_used_on_their_own() -> None:
    async with asking() as (apps, app, caller, id_):
        links = [await app.event_link(id_, "more", n) for n in range(2)]
        for link in links:
            assert "Confirm: more" in title(await caller("GET", link))
            assert title(await press(caller, link)) == "Thank you"
        waiting = apps.value((f"job#{int(id_[-3:], 16):04d}", f"{id_}#events"), internal=True)
        assert waiting["waiting"] == [["more", 0], ["more", 1]]


@virtual
async def test_expired_ended_and_removed_links_have_plain_pages() -> None:
    async with asking() as (apps, app, caller, id_):
        link = await app.event_link(id_, "approval", 1, expires_s=60)
        await apps.sleep(61)
        for answer in (await caller("GET", link), await press(caller, link)):
            assert (answer.status, title(answer)) == (410, "This link has expired")
        assert [key for key in apps.records if key[0] == "eventlink"] == []
        link = await app.event_link(id_, "approval", 1)
        await app.cancel(id_)
        for answer in (await caller("GET", link), await press(caller, link)):
            assert (answer.status, title(answer)) == (410, "No answer is needed any more")
        with pytest.raises(AlreadyEnded):
            await app.event_link(id_, "approval")


@virtual
async def test_forged_and_foreign_links_are_not_valid() -> None:
    async with asking() as (_, app, caller, id_):
        link = await app.event_link(id_, "approval", 1)
        prefix, _, token = link.rpartition("/")
        text, _, mark = token.partition(".")
        keys = app.store.server_keys
        other = EventLink("x", id_, "approval", "", (("Confirm", 1),), 2**60)
        unknown = EventLink("x", id_[:-4] + "0" + id_[-3:], "approval", "", (("Yes", 1),), 2**60)
        forged = [
            f"{text}.{'0' * 64}",
            f"{text[:-2]}AA.{mark}",
            f"{text}A.{mark}",
            text,
            f"{text}.",
            ".",
            "é" * 40,
            "x" * 4_000,
            f"{text}.{keys.sign('session', text)}",
            f"W10.{keys.sign('event link', 'W10')}",
            sealed(ServerKeys(parse_keys([new_key()])), other),
            sealed(keys, unknown),
        ]
        for bad in forged:
            for answer in (
                await caller("GET", f"{prefix}/{bad}"),
                await press(caller, f"{prefix}/{bad}"),
            ):
                assert (answer.status, title(answer)) == (404, "This link is not valid"), bad
        assert (await app.job(id_)).waits == "event approval"


@virtual
async def test_only_the_choices_of_a_link_can_be_sent() -> None:
    async with asking() as (_, app, caller, id_):
        link = await app.event_link(id_, "approval", 1)
        for choice in ("", "1", "-1", "0.0", "\u0660", "Confirm"):
            answer = await press(caller, link, choice)
            assert (answer.status, title(answer)) == (
                400,
                "This answer is not one of the choices",
            )
        wrong = await caller("POST", link, {"choice": 0})
        assert (wrong.status, title(wrong)) == (415, "The answer was not recorded")
        twice = await caller("POST", link, raw=b"choice=0&choice=0", headers=FORM)
        assert (twice.status, title(twice)) == (400, "The answer was not recorded")
        assert b"Open the link again." in twice.body
        assert (await caller("DELETE", link)).status == 405
        assert (await app.job(id_)).waits == "event approval"
        assert title(await press(caller, link)) == "Thank you"


@virtual
async def test_a_link_stays_valid_when_the_server_key_is_replaced() -> None:
    apps, old, new = Apps(shared=False), new_key(), new_key()
    first = declare(apps, server_key=old)
    async with first:
        id_ = (await first.send("orders", None)).id
        link = await first.event_link(id_, "approval", "yes", base_url="https://jobs.example/x/")
    assert link.startswith("https://jobs.example/x/event-links/")
    async with serving(declare(apps, server_key=[new, old])) as caller:
        path = link.removeprefix("https://jobs.example/x")
        assert title(await press(caller, path)) == "Thank you"
        assert await caller.app.result(id_, timeout_s=10) == "yes"


@virtual
async def test_a_job_with_too_many_events_keeps_the_link_open() -> None:
    async with asking() as (_, app, caller, id_):
        link = await app.event_link(id_, "late", 1)
        for _ in range(limits.EVENTS_MAX):
            await app.emit(id_, "other")
        full = await press(caller, link)
        assert (full.status, title(full)) == (409, "The answer was not recorded")
        assert (await caller("GET", link)).status == 200


@virtual
async def test_callers_need_the_scope_of_the_queue() -> None:
    async with serving_to(ann="work:orders", bob="send:orders", eve="work:other") as callers:
        app = callers["ann"].app
        id_ = (await app.send("orders", None, caller="bob")).id
        asked = {"event": "approval", "choices": CHOICES, "expires_ms": 60_000}
        path = f"/v1/jobs/{id_}/event-links"
        found = await callers["ann"].ok("POST", path, asked)
        assert found["url"].startswith("/event-links/")
        assert 0 < found["until_ms"] - app.store.clock.now_ms() <= 60_001
        for name in ("bob", "eve"):
            assert (await callers[name]("POST", path, asked)).code in ("no_such_job", "not_allowed")
        stranger = Caller(callers["ann"].server)
        assert (await stranger("POST", path, asked)).code == "no_credentials"
        assert title(await press(stranger, found["url"], 0)) == "Thank you"
        for wrong in ({"expires_ms": 0}, {"choices": {}}, {"value": 1}, {"base_url": "ftp://x"}):
            answer = await callers["ann"]("POST", path, {**asked, **wrong})
            assert answer.status in (400, 422), wrong


@virtual
async def test_pages_count_towards_the_rate_limit_of_an_address() -> None:
    async with asking(request_rate=0.01, request_burst=3) as (_, app, caller, id_):
        link = await app.event_link(id_, "approval", 1)
        stranger = AsgiCaller(caller.server)
        found = [(await stranger("GET", link, client=("192.0.2.7", 1))).status for _ in range(5)]
    assert found == [200, 200, 200, 429, 429]


@virtual
async def test_pages_work_below_the_path_of_another_application() -> None:
    async with asking() as (_, app, caller, id_):
        link = await app.event_link(id_, "approval", 1)
        mounted = AsgiCaller(caller.server, root_path="/jobs")
        answer = await mounted("GET", f"/jobs{link}")
        assert answer.status == 200
        assert 'href="../console/colours.css"' in answer.body.decode()
        assert (await caller("GET", "/console/colours.css")).status == 200


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"value": 1, "choices": CHOICES}, "not both"),
        ({"choices": {}}, "1 to 10 labels"),
        ({"choices": {str(n): n for n in range(11)}}, "1 to 10 labels"),
        ({"choices": ["Approve"]}, "1 to 10 labels"),
        ({"choices": {"": 1}}, "1 to 50 printable"),
        ({"choices": {"a\nb": 1}}, "1 to 50 printable"),
        ({"choices": {7: 1}}, "1 to 50 printable"),
        ({"text": "x" * 301}, "0 to 300 printable"),
        ({"text": 7}, "0 to 300 printable"),
        ({"expires_s": 0}, "more than 0"),
        ({"expires_s": -1}, "expires_s"),
        ({"expires_s": 10**9}, "expires_s"),
        ({"expires_s": "soon"}, "expires_s"),
        ({"base_url": "jobs.example.com"}, "such as https://"),
        ({"value": "x" * 2_000}, "at most 1900"),
        ({"value": print}, "link"),
        ({"event": ""}, "an event's name"),
        ({"event": 7}, "must be text"),
    ],
)
@virtual
async def test_bad_input_is_refused(options: dict[str, Any], match: str) -> None:
    async with asking() as (_, app, _, id_):
        with pytest.raises(BadInput, match=match):
            await app.event_link(id_, **{"event": "approval", **options})
        with pytest.raises(NoSuchJob):
            await app.event_link("nope", "approval")


async def test_people_can_use_the_page(tmp_path: Path) -> None:
    app = App("memory://", slots=4, server_key=new_key())

    @app.handler("orders")
    async def order(job: Job) -> Any:
        return await job.wait_for("approval")

    async with Served(app) as served:
        id_ = (await app.send("orders", None)).id
        text = "Ship order 7 to Ann Miller, Market Street 12?"
        link = await app.event_link(
            id_, "approval", choices=CHOICES, text=text, base_url=served.url
        )

        def visit() -> None:
            with browsing() as page:
                for scheme in ("light", "dark"):
                    for width in (360, 1_000):
                        page.emulate_media(color_scheme=scheme)
                        page.set_viewport_size({"width": width, "height": 500})
                        page.goto(link)
                        assert page.get_by_role("heading").inner_text() == text
                        assert grievances(page) == []
                        page.screenshot(path=tmp_path / f"ask-{scheme}-{width}.png")
                page.get_by_role("button", name="Reject").press("Enter")
                page.get_by_role("heading", name="Thank you").wait_for()
                assert grievances(page) == []
                page.screenshot(path=tmp_path / "done.png")

        await asyncio.to_thread(visit)
        assert await app.result(id_, timeout_s=30) == {"ok": False}
