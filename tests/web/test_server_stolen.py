"""Who has all files of a database, or a backup, but not the server key, gains nothing by them."""

import asyncio
import hmac
import re
import shutil
import sqlite3
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from hashlib import sha256
from pathlib import Path

import pytest

from onceward.app import App
from onceward.engine.sqlite.backup import back_up
from onceward.maintenance.key_source import ALARM
from onceward.server_key import ServerKeys
from onceward.web.auth import Auth
from onceward.web.server import Server
from onceward.webhooks.delivery import Outward
from tests.web.asgi import Caller, keyed
from tests.web.test_sessions import Browser

URL = "https://example.com/hook"
VALUES = ("Bearer hush-of-an-endpoint", "hush-of-a-timer", "hush-of-a-call", "hush-of-a-change")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@asynccontextmanager
async def serving(file: Path, auth: Auth) -> AsyncIterator[Caller]:
    file.parent.mkdir(exist_ok=True)
    # Without its own worker, a call that is due stays in its queue.
    app = App(f"sqlite:///{file}", slots=2, outward=Outward())
    async with Server(app, auth, work=False) as server:
        yield Caller(server)


async def plant(caller: Caller, key: str) -> list[str]:
    """Use everything that stores secrets; returns what must be found nowhere."""
    owner = Caller(caller.server, key)
    made = await owner.ok(
        "POST", "/v1/endpoints", {"id": "shop", "url": URL, "headers": {"a": VALUES[0]}}
    )
    rotated = await owner.ok("POST", "/v1/endpoints/shop/rotate", {"overlap_ms": 60_000})
    default = await owner.ok("GET", "/v1/endpoints/default?secret=true")
    await owner.ok("PATCH", "/v1/endpoints/shop", {"headers": {"a": VALUES[0], "b": VALUES[3]}})
    timer = {"id": "late", "url": URL, "headers": {"x": VALUES[1]}, "delay_ms": 1_000_000}
    await owner.ok("POST", "/v1/timers", timer)
    now = {"id": "now", "endpoint": "shop", "headers": {"x": VALUES[2]}, "delay_ms": 0}
    fired = asyncio.Event()
    caller.app.store.on_change("job", lambda write: fired.set())
    await owner.ok("POST", "/v1/timers", now)
    await fired.wait()
    browser = Browser(caller)
    assert (await browser.enter(token=key)).status == 200
    secrets = [one["secret"] for view in (made, rotated, default) for one in view["secrets"]]
    cookie = browser.cookie.partition("=")[2]
    return [*secrets, *VALUES, browser.token, cookie, cookie.partition(".")[2], key]


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path, path.read_bytes()


def find(folder: Path, planted: list[str]) -> list[tuple[str, str]]:
    """Where something that was planted is, as text or as the bytes of a secret."""
    found = []
    for path, content in contents(folder):
        for text in planted:
            forms = [text.encode()]
            if text.startswith("whsec_"):
                raw = b64decode(text[6:])
                forms += [text[6:].encode(), raw, raw.hex().encode()]
            found += [(path.name, text) for form in forms if form in content]
    return found


async def test_no_secret_is_in_the_files_of_a_server_or_in_a_backup(home: Path) -> None:
    auth, keys = keyed(ann="all")
    data = home / "data"
    async with serving(data / "app.db", auth) as caller:
        planted = await plant(caller, keys["ann"])
        (home / "backups").mkdir()
        back_up(str(data / "app.db"), str(home / "backups" / "copy.db"))
        shutil.copytree(data, home / "running")
    # Stopped, all is folded into the table, and the logs of SQLite are emptied into it.
    with closing(sqlite3.connect(data / "app.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for folder in ("running", "data", "backups"):
        assert find(home / folder, planted) == [], folder
        everything = b"".join(content for _, content in contents(home / folder))
        assert b"enc1." in everything
        assert b"shop" in everything
    [file] = (home / "state" / "onceward" / "keys").iterdir()
    assert find(home / "data", [file.read_text().strip()]) == []
    async with serving(data / "app.db", auth) as caller:
        shown = await Caller(caller.server, keys["ann"]).ok("GET", "/v1/endpoints/shop?secret=true")
        assert shown["headers"] == {"a": VALUES[0], "b": VALUES[3]}
        assert {one["secret"] for one in shown["secrets"]} <= set(planted)


def words(folder: Path) -> set[bytes]:
    """Everything in the records that may have been used as a secret."""
    everything = b"".join(content for _, content in contents(folder))
    texts = set(re.findall(rb"[A-Za-z0-9_.=+/#-]{4,}", everything))
    hexes = [one.decode() for one in texts if re.fullmatch(rb"([0-9a-f]{2})+", one)]
    return texts | {bytes.fromhex(one) for one in hexes}


async def test_nobody_makes_a_session_from_all_that_is_in_the_database(home: Path) -> None:
    auth, keys = keyed(ann="all")
    async with serving(home / "data" / "app.db", auth) as caller:
        await plant(caller, keys["ann"])
        browser = Browser(caller)
        await browser.enter(token=keys["ann"])
        name, _, value = browser.cookie.partition("=")
        text = value.partition(".")[0]
        (home / "stolen").mkdir()
        back_up(str(home / "data" / "app.db"), str(home / "stolen" / "copy.db"))
        guesses = words(home / "data") | words(home / "stolen")
        marks = {hmac.new(word, text.encode(), sha256).hexdigest() for word in guesses}
        marks |= {signed(word, text) for word in guesses if len(word) == 32}
        assert len(marks) > 100
        for mark in marks:
            browser.cookie = f"{name}={text}.{mark}"
            assert (await browser("GET", "/v1/session")).verdict == (401, "no_credentials")
        [file] = (home / "state").rglob("*.key")
        browser.cookie = f"{name}={text}.{signed(bytes.fromhex(file.read_text()), text)}"
        assert (await browser("GET", "/v1/session")).status == 200, "with the key it is easy"


def signed(key: bytes, text: str) -> str:
    return ServerKeys([key]).sign("session", text)


async def test_a_restore_without_the_key_starts_and_says_what_is_missing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth, keys = keyed(ann="all")
    async with serving(home / "data" / "app.db", auth) as caller:
        await plant(caller, keys["ann"])
        browser = Browser(caller)
        await browser.enter(token=keys["ann"])
        back_up(str(home / "data" / "app.db"), str(home / "copy.db"))
    [file] = (home / "state").rglob("*.key")
    kept = file.read_text()
    (home / "other").mkdir()
    shutil.copy(home / "copy.db", home / "other" / "app.db")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "new-state"))
    async with serving(home / "other" / "app.db", auth) as caller:
        owner = Caller(caller.server, keys["ann"])
        browser.caller = Caller(caller.server)
        assert (await browser("GET", "/v1/session")).verdict == (401, "no_credentials")
        ready = await owner.ok("GET", "/readyz")
        assert [alarm["code"] for alarm in ready["alarms"]] == [ALARM]
        attention = (await owner.ok("GET", "/v1/overview"))["attention"]
        assert any(one["name"] == ALARM for one in attention)
        shop = await owner.ok("GET", "/v1/endpoints/shop?secret=true")
        assert shop["suspended"] is True
        assert shop.get("headers", {}) == {}
        assert shop["secrets"] == []
        refused = await owner("POST", "/v1/endpoints/shop/rotate", {"overlap_ms": 0})
        assert refused.verdict == (409, "secret_unreadable")
        refused = await owner("PATCH", "/v1/endpoints/shop", {"description": "x"})
        assert refused.verdict == (409, "secret_unreadable")
        again = await owner.ok("PUT", "/v1/endpoints/shop", {"url": URL})
        assert "suspended" not in again
        assert (await owner.ok("DELETE", "/v1/endpoints/default"))["id"] == "default"
        secrets = (await owner.ok("GET", "/v1/endpoints/default?secret=true"))["secrets"]
        assert len(secrets) == 1
    monkeypatch.setenv("ONCEWARD_SERVER_KEY", kept)
    async with serving(home / "data" / "app.db", auth) as caller:
        browser.caller = Caller(caller.server)
        assert (await browser("GET", "/v1/session")).status == 200
