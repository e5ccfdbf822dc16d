"""The console's files: served under a strict policy, and written so that no text becomes markup."""

import re
from pathlib import Path
from typing import Any

import pytest

from onceward.web.http import Request, Response
from onceward.web.routes import Route
from onceward.web.site import Site
from tests.schedule.cluster import virtual
from tests.server_process import ROOT
from tests.web.asgi import Caller, keyed, serving
from tests.work.apps import Apps

FOLDER = ROOT / "onceward" / "web" / "page"
SCRIPTS = sorted(FOLDER.glob("*.js"))


@virtual
async def test_the_console_is_at_the_root_and_beside_it_for_everyone() -> None:
    auth, _ = keyed(ann="all")
    async with serving(auth=auth) as caller:
        anyone = Caller(caller.server)
        front = await anyone("GET", "/")
        assert front.status == 200
        assert front.headers["content-type"] == "text/html; charset=utf-8"
        assert (await anyone("GET", "/console")).body == front.body
        assert (await anyone("HEAD", "/console")).body == b""
        for name in re.findall(rb'(?:src|href)="(console/[^"]+)"', front.body):
            answer = await anyone("GET", f"/{name.decode()}")
            assert answer.status == 200, name
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
        for path in ("nothing.js", "..%2Fauth.py", "%2Fetc%2Fpasswd", "console.css/x", ""):
            assert (await anyone("GET", f"/console/{path}")).verdict == (404, "not_found")
        assert (await anyone("POST", "/console")).verdict == (405, "method_not_allowed")


@virtual
async def test_an_application_may_have_a_front_page_of_its_own() -> None:
    async def front(owner: Any, request: Request) -> Response:
        return Response(200, b"mine", b"text/plain")

    app = Apps(shared=False).make()
    app.mount("/", Site([Route("GET", "/", front, "Mine")]))
    async with serving(app) as caller:
        assert (await caller("GET", "/")).body == b"mine"
        assert b"app.js" in (await caller("GET", "/console")).body


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    page = (FOLDER / "console.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert "<style" not in page
    assert re.findall(r"\son\w+=|\sstyle=|javascript:", page) == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_no_script_makes_markup_of_text(script: Path) -> None:
    text = script.read_text()
    ways = (
        *("innerHTML", "outerHTML", "insertAdjacentHTML", "srcdoc", "DOMParser"),
        *("document.write", "eval(", "new Function", "createContextualFragment"),
    )
    assert [way for way in ways if way in text] == []
    # Elements are made in one place, which makes texts of all that it is given.
    assert ("createElement" in text) is (script.name == "dom.js")
    for name in re.findall(r'from "\./([^"]+)"|import\("\./([^"]+)"\)', text):
        assert (FOLDER / "".join(name)).exists()


@virtual
async def test_no_page_can_be_framed_or_loads_anything_from_elsewhere() -> None:
    async with serving() as caller:
        for path in ("/", "/console", "/docs"):
            answer = await caller("GET", path)
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'"), path
            assert "frame-ancestors 'none'" in policy, path
            assert "unsafe" not in policy, path
            assert answer.headers["x-content-type-options"] == "nosniff", path
            assert re.findall(rb"(?:src|href)=\"(?:https?:)?//", answer.body) == [], path
