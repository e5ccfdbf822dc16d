"""The hooks with the real React, in a browser: what they show, what happens when React renders
twice or hides a component, and the example of the guide as it stands there."""

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from onceward.client import Client
from onceward.client.rooms.live import Live
from onceward.client.rooms.room import Room
from tests.client.served import Cutter, Served
from tests.needs import missing, need_program
from tests.tabs import LOST, launched, tabs

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".venv-npm" / "node_modules"
# In the order in which they need each other.
PACKAGES = {
    "react": "react/cjs/react.development.js",
    "scheduler": "scheduler/cjs/scheduler.development.js",
    "react-dom": "react-dom/cjs/react-dom.development.js",
    "react-dom/client": "react-dom/cjs/react-dom-client.development.js",
}
NAMES = (
    *("Activity", "Fragment", "StrictMode", "createElement", "useEffect", "useMemo", "useReducer"),
    *("useRef", "useState", "useSyncExternalStore"),
)
IMPORTS = {
    "react": "/tests/react-itself.js",
    "react-dom/client": "/tests/react-itself.js",
    "onceward/react": "/react.js",
    "example": "/tests/example.js",
}
# Into a page of the server's own: others may not connect to it.
BEGIN = """async (imports) => {
    const map = document.createElement("script");
    map.type = "importmap";
    map.textContent = JSON.stringify({ imports });
    const place = document.createElement("div");
    document.body.replaceChildren(map, place);
    Object.assign(globalThis, await import("react"), await import("react-dom/client"));
    globalThis.hooks = await import("/tests/hooks.js");
    globalThis.root = createRoot(place);
    globalThis.strict = (...all) => createElement(StrictMode, null, ...all);
}"""
COMPILE = """
const ts = require(process.argv[1]);
const text = require("fs").readFileSync(0, "utf8");
const compilerOptions = {
    jsx: ts.JsxEmit.React, jsxFactory: "createElement", jsxFragmentFactory: "Fragment",
    target: ts.ScriptTarget.ESNext, module: ts.ModuleKind.ESNext,
};
process.stdout.write(ts.transpileModule(text, { compilerOptions }).outputText);
"""


def react() -> str:
    """React as one module for browsers: npm has it as what Node loads."""
    if not (INSTALLED / "react").is_dir():
        missing("there is no React here: scripts/npm.sh installs it")
    parts = ['const process = { env: { NODE_ENV: "development" } };', "const loaded = {};"]
    parts.append("const require = (name) => loaded[name];")
    for name, file in PACKAGES.items():
        text = (INSTALLED / file).read_text()
        parts.append(
            f"loaded[{name!r}] = (() => {{ const module = {{ exports: {{}} }}, exports = "
            f"module.exports;\n{text}\nreturn module.exports; }})();"
        )
    parts.append(f"export const {{ {', '.join(NAMES)} }} = loaded.react;")
    parts.append('export const { createRoot } = loaded["react-dom/client"];')
    return "\n".join(parts)


def example() -> str:
    """The component in the guide, as a bundler would make it a module."""
    guide = (ROOT / "docs" / "browser.md").read_text()
    (text,) = re.findall(r"```jsx\n(.*?)```", guide, re.DOTALL)
    made = subprocess.run(
        [need_program("node"), "-e", COMPILE, INSTALLED / "typescript"],
        input=text.replace("function Items", "export function Items"),
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    return f'import {{ createElement, Fragment }} from "react";\n{made.stdout}'


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Any]:
    async with launched() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Any) -> AsyncIterator[Any]:
    async with Served() as served, tabs(browser, served.url) as [page]:
        await page.route("**/tests/react-itself.js", _answer(react()))
        await page.route("**/tests/example.js", _answer(example()))
        await page.evaluate(BEGIN, IMPORTS)
        page.served = served
        yield page


def _answer(script: str) -> Any:
    async def answer(route: Any) -> None:
        await route.fulfill(body=script, content_type="text/javascript")

    return answer


async def shows(page: Any, user: str, **wanted: Any) -> None:
    """Wait until a component shows these values."""
    await page.wait_for_function(
        """([user, wanted]) => {
            const shown = JSON.parse(document.querySelector(`#all-${user}`)?.textContent ?? "{}");
            const same = (name) => JSON.stringify(shown[name]) === JSON.stringify(wanted[name]);
            return Object.keys(wanted).every(same);
        }""",
        arg=[user, wanted],
    )


async def test_a_component_shows_a_room_and_what_is_done_in_it(page: Any) -> None:
    async with Live(page.served.url, token="dev:ben") as live:
        room = await live.join("r", create=True)
        await room.list("l").push("old")
        await page.evaluate("root.render(strict(createElement(hooks.All, { user: 'ann' })))")
        connection = {"state": "connected", "user": "ann"}
        await shows(page, "ann", connection=connection, status="live", items=["old"])
        await shows(page, "ann", members=["ben", "ann"], canUndo=False)
        assert await page.evaluate("hooks.made.length") == 1, "React has rendered twice"

        room.map("m").set("k", 1)
        room.presence("p").set({"x": 1})
        room.say("wave", 7)
        await shows(page, "ann", values={"k": 1}, people={"ben": {"x": 1}})
        await page.wait_for_function("() => hooks.heard.length === 1")
        assert await page.evaluate("hooks.heard") == [["ann", 7, "ben"]]

        await page.evaluate(
            """() => {
                const drag = hooks.does.gesture();
                for (let x = 0; x < 5; x++) hooks.does.map.set("note", { x });
                drag.end();
                hooks.does.presence.set("here");
            }"""
        )
        await shows(page, "ann", values={"k": 1, "note": {"x": 4}}, canUndo=True)
        await page.evaluate("void hooks.does.undo()")
        await shows(page, "ann", values={"k": 1}, canUndo=False, canRedo=True)
        await page.evaluate("void hooks.does.redo()")
        await shows(page, "ann", values={"k": 1, "note": {"x": 4}})

        # What has not changed is not rendered again.
        await page.evaluate("hooks.does.room.map('other').set('k', 1).then(() => 0)")
        before = await page.evaluate("hooks.renders.count")
        await page.evaluate("hooks.does.room.map('other').set('k', 2).then(() => 0)")
        assert await page.evaluate("hooks.renders.count") - before <= 4, "undo, and what waits"

        # Another room, and then none.
        await page.evaluate(
            "root.render(strict(createElement(hooks.All, { user: 'ann', id: 's' })))"
        )
        await shows(page, "ann", status="live", members=["ann"], items=[])
        await until_alone(room)
        await page.evaluate("root.render(null)")
        await page.wait_for_function("() => hooks.does.live.state === 'closed'")
        assert await page.evaluate("hooks.made.map((live) => live.state)") == ["closed"]


async def until_alone(room: Room) -> None:
    changed = asyncio.Event()
    end = room.on_members(lambda members: changed.set())
    while len(room.members) > 1:
        changed.clear()
        await changed.wait()
    end()


async def test_a_component_that_was_hidden_for_a_while_is_in_its_room_again(page: Any) -> None:
    await page.evaluate(
        """() => {
            const all = createElement(hooks.All, { user: "ann" });
            const parts = {
                first: createElement(Activity, { mode: "visible" }, all),
                hidden: createElement(Activity, { mode: "hidden" }, all),
            };
            root.render(strict(createElement(hooks.Switch, { parts })));
        }"""
    )
    await shows(page, "ann", status="live")
    await page.evaluate("hooks.does.list.push('kept').then(() => hooks.Switch.show('hidden'))")
    await page.wait_for_function("() => hooks.made.at(-1).state === 'closed'")
    await page.evaluate("hooks.Switch.show('first')")
    await page.wait_for_function("() => hooks.made.length === 2")
    await shows(page, "ann", status="live", items=["kept"])
    states = await page.evaluate("hooks.made.map((live) => live.state)")
    assert states == ["closed", "connected"]
    await page.evaluate("root.render(null)")


async def test_a_component_follows_a_job_through_lost_connections(browser: Any) -> None:
    async with (
        Served() as served,
        Cutter(served.port) as cutter,
        Client(served.url) as client,
        tabs(browser, cutter.url, forgive=f"{LOST}|status of 404") as [page],
    ):
        await page.route("**/tests/react-itself.js", _answer(react()))
        await page.evaluate(BEGIN, IMPORTS)
        id_ = (await client.send("q", 1)).id
        [claim] = await client.jobs.claim("q", lease_s=600)
        show = """async (id) => {
            const { Client } = await import("/http.js");
            globalThis.client ??= new Client();
            root.render(strict(createElement(hooks.Followed, { client, id })));
        }"""
        await page.evaluate(show, id_)
        await shows(page, "job", state="running", progress=None, chunks=[])
        chunks: list[Any] = []
        for number in range(4):
            cutter.deaf.set()
            cutter.cut_all()
            some = [f"chunk {number}", {"n": number}]
            options = {"progress": number / 4, "text": f"part {number}", "first": len(chunks)}
            await client.jobs.report(id_, claim.token, chunks=some, **options)
            cutter.deaf.clear()
            chunks += some
            await shows(page, "job", progress=number / 4, text=f"part {number}", chunks=chunks)
        await client.jobs.fail(id_, claim.token, "no ink", retry_after_s=0)
        [claim] = await client.jobs.claim("q", lease_s=600, wait_s=20)
        await client.jobs.report(id_, claim.token, chunks=["again"])
        await shows(page, "job", chunks=["again"])
        await client.jobs.complete(id_, claim.token, result=7)
        await shows(page, "job", state="succeeded", result=7, chunks=["again"])
        await page.evaluate(show, None)
        await shows(page, "job", state="", chunks=[])
        await page.evaluate(show, "x")
        await page.wait_for_function(
            "() => JSON.parse(document.querySelector('#all-job').textContent).error?.code"
        )
        await page.evaluate("root.render(null)")


async def test_the_example_of_the_guide_works(page: Any) -> None:
    async with Live(page.served.url, token="dev:ben") as live:
        room = await live.join("shopping", create=True)
        await page.evaluate(
            """async () => {
                const { Items } = await import("example");
                root.render(strict(createElement(Items)));
            }"""
        )
        await room.list("items").push("milk")
        await room.list("items").push("bread")
        await page.get_by_text("milk").click()
        await page.get_by_text("milk").wait_for(state="detached")
        undo = page.get_by_role("button", name="undo")
        assert await page.get_by_text("bread").is_visible()
        await undo.click()
        await page.get_by_text("milk").wait_for()
        await page.wait_for_function("() => document.querySelector('button').disabled")
        assert await page.locator("p").all_text_contents() == ["milk", "bread"]
        await page.evaluate("root.render(null)")
