"""The client in a real browser: the vectors, the page of the guide, a tab in whose room very much
happens, and tabs and Python programs in one room while connections are lost and the server is
killed."""

import asyncio
import json
import os
import random
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from onceward import limits
from onceward.client import Client
from onceward.client.rooms.live import Live
from onceward.client.rooms.room import Room
from onceward.clock import Clock
from onceward.errors import TABLE
from tests.client.served import Served
from tests.server_process import ServerProcess
from tests.tabs import launched, tabs
from tests.web.editor import Editor, Hasty

pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="module"),  # one browser for all
    pytest.mark.timeout(2_700),
]

TABS, PROGRAMS = 2, 1
# How often all edit, and how much; `make soak-browser` takes the larger numbers, or as many rounds
# as ONCEWARD_ROUNDS says.
ROUNDS, EDITS = 1, 30
SOAK_ROUNDS, SOAK_EDITS = 40, 300

ENTER = """async ([name, seed]) => {
    const { Person } = await import("/tests/person.js");
    globalThis.person = await Person.enter(await import("/client.js"), name, "r", seed);
}"""

USERS, KEYS = 2, 200
# Changes a second of all users, and for how many seconds; `make soak-browser` takes the larger one,
# or as many as ONCEWARD_SECONDS says.
RATE, SECONDS, SOAK_SECONDS = 1_000, 2, 300
# So much more a tab may have in the end than when it had all keys: noise, and not what it received.
GROWTH_BYTES = 1_500_000

PLAY = """async ([vectors]) => {
    const names = ["positions", "state", "replica"];
    const modules = await Promise.all(names.map((name) => import(`/modules/client/${name}.js`)));
    const { count, play } = await import("/tests/vectors.js");
    return [count(vectors), play(Object.assign({}, ...modules), vectors)];
}"""
WATCH = """async () => {
    const { Live } = await import("/client.js");
    const { Watcher } = await import("/tests/watcher.js");
    const room = await new Live(null, { token: "dev:watcher" }).join("r", { create: true });
    globalThis.watcher = new Watcher(room);
}"""


# The client over HTTP: arguments in all places, options, values of the user, and an error.
CALL = """async () => {
    const { Client } = await import("/http.js");
    const client = new Client();
    const sent = await client.send("orders", { item_id: 7 }, { key: "order-1", delayS: 60 });
    const job = await client.jobs.get(sent.id);
    const at = new Date(Date.now() + 60_000);
    const timer = await client.timers.create({ id: "t", queue: "orders", at, body: { a_b: 1 } });
    const listed = await client.timers.list({ prefix: "t", limit: 1 });
    const held = await client.locks.hold("report", (lock) => Object.keys(lock.tokens));
    const error = await client.rooms.get("none").catch((error) => error);
    const { leftMs } = listed.timers[0];
    return [job.body, job.attemptsMax > 0, timer.body, leftMs <= 60_000, held, error.code];
}"""

TOO_LARGE = """async ([url, bytes]) => {
    const socket = new WebSocket(url);
    await new Promise((resolve) => { socket.onopen = resolve; });
    socket.send(JSON.stringify({ t: "hello", token: "dev:ann" }));
    const closed = new Promise((resolve) => { socket.onclose = resolve; });
    socket.send("x".repeat(bytes));
    return (await closed).code;
}"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Any]:
    async with launched() as browser:
        yield browser


async def test_the_vectors_are_played_as_they_should(browser: Any) -> None:
    folder = Path("tests/vectors/rooms")
    vectors = {
        name: json.loads((folder / f"{name}.json").read_text())
        for name in ("positions", "steps", "replica")
    }
    async with Served() as served, tabs(browser, served.url) as [page]:
        count, wrong = await page.evaluate(PLAY, [vectors])
    assert count > 50
    assert wrong == []


async def test_a_page_calls_the_server_over_http(browser: Any) -> None:
    async with Served() as served, tabs(browser, served.url, forgive="404") as [page]:
        found = await page.evaluate(CALL)
    assert found == [{"item_id": 7}, True, {"a_b": 1}, True, ["report"], "no_such_room"]


async def test_a_browser_is_told_why_its_message_was_too_large(
    browser: Any, tmp_path: Path
) -> None:
    code = TABLE["frame_too_large"].close
    with ServerProcess(tmp_path) as server:
        address = server.url.replace("http", "ws", 1) + "/v1/ws"
        async with tabs(browser, server.url) as [page]:
            for size in (limits.FRAME_BYTES_MAX + 1, 8 * limits.FRAME_BYTES_MAX) * 8:
                assert await page.evaluate(TOO_LARGE, [address, size]) == code


async def test_the_page_of_the_guide_is_shared_by_all_who_have_it_open(
    browser: Any, tmp_path: Path
) -> None:
    guide = Path("docs/browser.md").read_text()
    for kind, name in (("html", "index.html"), ("python", "shopping.py")):
        (code,) = re.findall(rf"^```{kind}\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
        (tmp_path / name).write_text(code)
    assert "onceward serve --app shopping:app" in guide
    with ServerProcess(tmp_path, "--app", "shopping:app") as server:
        async with tabs(browser, server.url, 2) as [ann, ben]:
            for page in (ann, ben):
                await page.route("**/favicon.ico", lambda route: route.fulfill(status=204))
                await page.goto(f"{server.url}/shopping")
            async with ann.expect_console_message(lambda said: said.text == "step 1"):
                await ann.locator("input").fill("milk")
                await ann.keyboard.press("Enter")
            await ben.get_by_text("milk").wait_for()
            await ben.locator("input").fill("bread")
            await ben.keyboard.press("Enter")
            await ann.get_by_text("bread").wait_for()
            assert await ann.locator("li").all_text_contents() == ["milk", "bread"]
            await ann.get_by_text("milk").click()
            await ben.get_by_text("milk").wait_for(state="detached")
            assert await ben.locator("li").all_text_contents() == ["bread"]


async def test_a_tab_in_which_very_much_happens_stays_small_and_responsive(
    browser: Any, tmp_path: Path, soak: bool
) -> None:
    seconds = int(os.environ.get("ONCEWARD_SECONDS", SOAK_SECONDS)) if soak else SECONDS
    with ServerProcess(tmp_path) as server:
        async with tabs(browser, server.url) as [page]:
            await page.evaluate(WATCH)
            clients = [Live(server.url, token=f"dev:user {n}") for n in range(USERS)]
            rooms = [await (await live.open()).join("r") for live in clients]
            await _flood(rooms, 1)
            await page.evaluate("seq => watcher.until(seq)", rooms[0].position[1])
            before = await _heap(page)
            begun = rooms[0].position[1]
            took_s = 0.0
            for minute in range(0, seconds, 60):
                took_s += await _flood(rooms, min(seconds - minute, 60))
                end = max(room.position[1] for room in rooms)
                await page.evaluate("seq => watcher.until(seq)", end)
                told, late, longest = await page.evaluate(
                    "[watcher.told, watcher.late(), watcher.longestMs]"
                )
                heap = await _heap(page)
                rate = (end - begun) / took_s
                print(
                    f"{end - begun} changes, {rate:.0f} a second, told {told} times; heap "
                    f"{heap / 1e6:.2f} MB, before {before / 1e6:.2f}; late by {late:.0f} ms, "
                    f"{longest:.0f} at the most",
                    flush=True,
                )
            whole = await page.evaluate("watcher.room.map('flood').whole()")
            assert whole == rooms[0].map("flood").whole()
            assert end - begun >= RATE * seconds
            assert told < end / 2, "what comes in a burst is told together"
            assert heap < before + GROWTH_BYTES
            if soak:
                assert rate > 0.9 * RATE, "the machine was too slow to show anything"
                assert late < 100, "ms"
            for live in clients:
                await live.close()


async def test_browsers_and_programs_see_the_same_whatever_happens(
    browser: Any, tmp_path: Path, soak: bool
) -> None:
    rounds = int(os.environ.get("ONCEWARD_ROUNDS", SOAK_ROUNDS)) if soak else ROUNDS
    edits = SOAK_EDITS if soak else EDITS
    clock = Clock()
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        server = stack.enter_context(ServerProcess(tmp_path))
        client = await stack.enter_async_context(Client(server.url))
        # So much is done while a tab is offline that less would not reach back to where it was.
        await client.rooms.create(id="r", keep=limits.ROOM_KEEP_STEPS_MAX)
        pages = await stack.enter_async_context(tabs(browser, server.url, TABS))
        for number, page in enumerate(pages):
            await page.evaluate(ENTER, [f"tab {number}", chance.randrange(1 << 32)])
        users = []
        for number in range(PROGRAMS):
            live = Live(server.url, token=f"dev:user {number}", clock=Hasty())
            await stack.enter_async_context(live)
            users.append(Editor(f"user {number}", await live.join("r"), chance))
        everyone = TABS + PROGRAMS
        for round_ in range(1, rounds + 1):
            begun_ns = clock.elapsed_ns()
            work = [asyncio.create_task(user.edit(edits)) for user in users]
            work += [
                asyncio.create_task(page.evaluate("count => person.edit(count)", edits))
                for page in pages
            ]
            away = pages[round_ % TABS].context
            await away.set_offline(True)
            await asyncio.wait(work[:1], timeout=chance.random() / 2)
            server.kill()
            server.start()
            await asyncio.to_thread(server.until_ready)
            await away.set_offline(False)
            for page in pages:
                await page.evaluate("person.live.wake()")
            await asyncio.gather(*work)
            mark = f"round {round_}"
            await asyncio.gather(
                *[user.rest(everyone, mark) for user in users],
                *[
                    page.evaluate("([n, mark]) => person.rest(n, mark)", [everyone, mark])
                    for page in pages
                ],
            )
            seen = [user.seen() for user in users]
            seen += [await page.evaluate("person.seen()") for page in pages]
            assert all(one == seen[0] for one in seen), f"seed {seed}"
            names = [f"user {n}" for n in range(PROGRAMS)] + [f"tab {n}" for n in range(TABS)]
            assert seen[0]["counts"] == dict.fromkeys(names, round_ * edits)
            took_s = (clock.elapsed_ns() - begun_ns) / 1e9
            items, position = len(seen[0]["items"]), seen[0]["position"]
            print(f"round {round_}: {took_s:.1f} s, {items} items, {position[1]} steps", flush=True)
        outcomes = [dict(user.outcomes) for user in users]
        outcomes += [await page.evaluate("person.outcomes") for page in pages]
        assert outcomes == [{"taken": rounds * edits}] * everyone
        print(seen[0]["position"], "steps")


async def _flood(rooms: list[Room], seconds: int) -> float:
    """Change a room at the rate, all users together; returns how many seconds that took."""
    clock = Clock()
    begun_ns = clock.elapsed_ns()
    made = 0
    while made < RATE * seconds:
        due = int((clock.elapsed_ns() - begun_ns) / 1e9 * RATE)
        saved: list[Any] = []
        for number in range(made, min(due, made + 100, RATE * seconds)):
            room = rooms[number % len(rooms)]
            saved.append(
                room.map("flood").set(
                    f"key {number % KEYS}", {"text": f"{number:020}", "n": number}
                )
            )
        made += len(saved)
        if made < due:
            await saved[0]  # the server comes first
        else:
            await clock.sleep(0.02)
    while any(room.waiting for room in rooms):
        await clock.sleep(0.02)
    # All have all of it.
    await asyncio.gather(*[room.map("ends").add(str(n)) for n, room in enumerate(rooms)])
    return (clock.elapsed_ns() - begun_ns) / 1e9


async def _heap(page: Any) -> int:
    """How much the page's objects take, when what nobody needs is gone."""
    devtools = await page.context.new_cdp_session(page)
    await devtools.send("HeapProfiler.enable")
    for _ in range(3):
        await devtools.send("HeapProfiler.collectGarbage")
    used = (await devtools.send("Runtime.getHeapUsage"))["usedSize"]
    await devtools.detach()
    return int(used)
