"""Server keys are given or made, and are those of the database, or the node says so."""

import logging
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from onceward import limits
from onceward.app import App
from onceward.engine.memory import Memory, MemoryEngine
from onceward.errors import OncewardError
from onceward.maintenance.key_source import ALARM, RECORD, KeyRecord, KeySource, key_folder
from onceward.server_key import new_key
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.testing.clock import VirtualClock
from onceward.webhooks import endpoints
from onceward.webhooks.signing import new_secret
from tests.schedule.cluster import TestEngine, virtual
from tests.schedule.jobs import all_records

ONE, TWO = "11" * 32, "22" * 32
URL = "https://example.com/hook"


class Lasting(TestEngine):
    """Records that outlive the process, as on a disk: their key is kept elsewhere."""

    def own_key(self) -> bytes | None:
        return None


class Database:
    """A database on which applications with several keys are started."""

    def __init__(self, *, shared: bool) -> None:
        self.memory = Memory()
        self.shared = shared

    def app(self, *server_key: str) -> App:
        engine = Lasting(self.memory)
        engine.shared = self.shared
        made = list(server_key) or None
        return App(engine, slots=2, server_key=made, store=lambda e: Store(e, VirtualClock()))

    @asynccontextmanager
    async def running(self, *server_key: str) -> AsyncIterator[App]:
        async with self.app(*server_key) as app:
            await app.key_source.unlock()
            yield app


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


async def make(app: App, id_: str = "e") -> str:
    secret = new_secret(app.store.ids)
    put = lambda tx: endpoints.put(tx, id_, URL, secret, headers={"a": "hush"})  # noqa: E731
    await app.store.run(put)
    timer = {"url": URL, "headers": {"b": "hush"}, "delay_s": 1e6}
    await app.timers.set(f"timer-{id_}", **timer)  # type: ignore[arg-type]
    return secret


async def read(app: App, id_: str = "e") -> endpoints.Endpoint:
    return await app.store.run(lambda tx: endpoints.get(tx, id_))


@virtual
async def test_a_key_is_made_for_its_owner_alone_and_found_again(home: Path) -> None:
    database = Database(shared=False)
    async with database.running() as app:
        secret = await make(app)
    [file] = key_folder().iterdir()
    assert file.is_relative_to(home / "state")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    async with database.running() as app:
        assert (await read(app)).secrets_at(0) == [secret]
        assert not list(app.alarms)
    assert len(list(key_folder().iterdir())) == 1


@virtual
async def test_an_application_that_stores_no_secrets_needs_no_key(home: Path) -> None:
    database = Database(shared=False)
    async with database.app() as app:
        await app.send("q", 1)
        await app.timers.set("t", url=URL, delay_s=1e6)
        assert not key_folder().exists()
        await app.timers.set("u", url=URL, headers={"a": "b"}, delay_s=1e6)
        assert key_folder().exists()


@pytest.mark.parametrize("way", ["argument", "text", "file"])
@virtual
async def test_a_key_that_is_given_is_used_and_none_is_made(
    home: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    database = Database(shared=True)
    async with database.running(ONE) as app:
        await make(app)
    if way == "text":
        monkeypatch.setenv("ONCEWARD_SERVER_KEY", ONE)
    elif way == "file":
        (home / "server.key").write_text(f"{ONE}\n")
        monkeypatch.setenv("ONCEWARD_SERVER_KEY_FILE", str(home / "server.key"))
    async with database.running(*([ONE] if way == "argument" else [])) as app:
        assert (await read(app)).headers == {"a": "hush"}
    assert not key_folder().exists()


@virtual
async def test_what_is_wrong_with_a_given_key_is_told_without_the_key(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(shared=False)

    async def refusal() -> OncewardError:
        with pytest.raises(OncewardError) as refused:
            async with database.running():
                pass
        assert refused.value.code == "bad_settings"
        assert "hush" not in str(refused.value)
        return refused.value

    monkeypatch.setenv("ONCEWARD_SERVER_KEY", "hush")
    await refusal()
    monkeypatch.setenv("ONCEWARD_SERVER_KEY_FILE", str(home / "missing"))
    assert "remove one of them" in (await refusal()).message
    monkeypatch.delenv("ONCEWARD_SERVER_KEY")
    assert "missing" in (await refusal()).message
    monkeypatch.setenv("ONCEWARD_SERVER_KEY_FILE", str(home))
    assert "cannot read" in (await refusal()).message
    (home / "empty").write_text("# nothing\n")
    monkeypatch.setenv("ONCEWARD_SERVER_KEY_FILE", str(home / "empty"))
    assert "empty" in (await refusal()).message


@pytest.mark.parametrize("state", ["/dev/null/nowhere", "/proc/nowhere"])
@virtual
async def test_where_no_key_can_be_kept_the_settings_are_named(
    monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", state)
    with pytest.raises(OncewardError, match="set ONCEWARD_SERVER_KEY_FILE") as refused:
        async with Database(shared=False).running():
            pass
    assert refused.value.code == "no_server_key"


@virtual
async def test_nodes_of_one_database_have_the_same_key_or_do_not_start(home: Path) -> None:
    database = Database(shared=True)
    async with database.running(ONE), database.running(ONE, TWO), database.running(TWO, ONE):
        pass
    async with database.running(ONE, TWO):
        pass
    database = Database(shared=True)
    async with database.running(ONE) as app:
        for other in ((TWO,), ()):
            with pytest.raises(OncewardError, match="server-key replace") as refused:
                async with database.app(*other):
                    pass
            assert refused.value.code == "wrong_server_key"
        assert not key_folder().exists()
        record = await app.store.run(lambda tx: tx.get(RECORD, KeyRecord))
        assert record is not None
        assert list(record.checks) == list(app.store.server_keys.checks)


@virtual
async def test_a_lost_key_can_be_replaced_where_nodes_share_a_database(home: Path) -> None:
    database = Database(shared=True)
    async with database.running(ONE) as app:
        await make(app)
        engine = Lasting(database.memory)
        async with engine:
            await KeySource(Store(engine, VirtualClock()), [TWO]).replace()
    async with database.running(TWO) as app:
        assert (await read(app)).suspended
        assert app.alarms.get(ALARM) is not None


@virtual
async def test_without_its_key_a_database_starts_with_endpoints_suspended(home: Path) -> None:
    database = Database(shared=False)
    async with database.running(ONE) as app:
        secret = await make(app)
        await make(app, "f")
    async with database.running(TWO) as app:
        alarm = app.alarms.get(ALARM)
        assert alarm is not None
        assert "ONCEWARD_SERVER_KEY_FILE" in alarm.message
        endpoint = await read(app)
        assert endpoint.suspended
        assert (endpoint.secrets, endpoint.headers) == ([], {})
        with pytest.raises(OncewardError, match="suspended") as refused:
            await app.store.run(lambda tx: endpoints.rotate(tx, "e", secret, overlap_ms=0))
        assert refused.value.code == "secret_unreadable"
        view = await app.timers.get("timer-e")
        assert "unreadable" in view.timer.spec.target.headers["b"]  # type: ignore[union-attr]
        await app.timers.cancel("timer-e")
        made = await make(app)
        assert (await read(app)).secrets_at(0) == [made]
        assert not (await read(app)).suspended
        assert (await read(app, "f")).suspended
    async with database.running(TWO, ONE) as app:
        assert not (await read(app, "f")).suspended


@virtual
async def test_the_alarm_ends_when_everything_was_written_again(home: Path) -> None:
    database = Database(shared=False)
    async with database.running(ONE) as app:
        await make(app)
    async with database.running(TWO) as app:
        clock = app.store.clock
        await clock.sleep(1)
        assert app.alarms.get(ALARM) is not None
        await make(app)
        await clock.sleep(limits.REENCRYPT_S + 1)
        assert app.alarms.get(ALARM) is None
    async with database.running(TWO) as app:
        assert not list(app.alarms)


@pytest.mark.parametrize("shared", [False, True])
@virtual
async def test_after_a_rotation_everything_is_encrypted_with_the_new_key(
    home: Path, shared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(shared=shared)
    async with database.running(ONE) as app:
        secret = await make(app)
        await app.timers.set("due", url=URL, headers={"c": "hush"}, delay_s=0)
        await app.store.clock.sleep(1)  # and so a job has its headers
        old, *_ = app.store.server_keys.checks
    with caplog.at_level(logging.INFO, "onceward"):
        async with database.running(TWO, ONE) as app:
            await app.store.clock.sleep(1)
    assert f"({old}) can be removed" in caplog.text
    stored = b"".join(one.value for one in all_records(MemoryEngine(database.memory)).values())
    assert b"enc1." in stored
    assert old.encode() not in stored
    async with database.running(TWO) as app:
        assert not list(app.alarms)
        assert (await read(app)).secrets_at(0) == [secret]
        view = await app.timers.get("due")
        assert view.timer.spec.target.headers == {"c": "hush"}  # type: ignore[union-attr]


@virtual
async def test_a_timer_is_the_same_if_its_headers_are(home: Path) -> None:
    database = Database(shared=False)
    asked = {"url": URL, "delay_s": 1e6, "replace": False}
    async with database.running(ONE) as app:
        for _ in range(2):
            await app.timers.set("t", headers={"a": "1"}, **asked)  # type: ignore[arg-type]
        with pytest.raises(OncewardError) as refused:
            await app.timers.set("t", headers={"a": "2"}, **asked)  # type: ignore[arg-type]
        assert refused.value.code == "key_reused"
    async with database.running(TWO, ONE) as app:
        await app.timers.set("t", headers={"a": "1"}, **asked)  # type: ignore[arg-type]


@virtual
async def test_a_key_file_for_everyone_draws_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "server.key"
    file.write_text(new_key())
    file.chmod(0o644)
    database = Database(shared=False)
    store = Store(await Lasting(database.memory).open(), VirtualClock())
    await KeySource(store, environment={"ONCEWARD_SERVER_KEY_FILE": str(file)}).unlock()
    assert "every user of this machine can read the server key" in caplog.text
    assert file.read_text() not in caplog.text


@virtual
async def test_a_key_in_the_folder_of_the_database_draws_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(await Lasting(Memory()).open(), VirtualClock())
    environment = {"XDG_STATE_HOME": str(tmp_path / "state")}
    await KeySource(store, path=str(tmp_path / "app.db"), environment=environment).unlock()
    assert "is in the folder of the database" in caplog.text


async def test_on_postgresql_a_node_with_another_key_does_not_start(url: str, home: Path) -> None:
    async with App(url, server_key=ONE, slots=2) as app:
        await app.key_source.unlock()
        with pytest.raises(OncewardError) as refused:
            async with App(url, server_key=TWO, slots=2):
                pass
        assert refused.value.code == "wrong_server_key"
        async with App(url, server_key=[TWO, ONE], slots=2):
            pass


async def test_on_postgresql_nodes_of_one_machine_find_the_key_that_was_made(
    url: str, home: Path
) -> None:
    async with App(url, slots=2) as one:
        await one.key_source.unlock()
        async with App(url, slots=2) as two:
            assert two.store.server_keys.checks == one.store.server_keys.checks


@virtual
async def test_a_database_cannot_name_any_file_as_its_key(home: Path) -> None:
    database = Database(shared=False)
    async with database.app() as app:
        await app.store.run(_named("../../elsewhere"))
        with pytest.raises(OncewardError, match="32 hex digits") as refused:
            await app.key_source.unlock()
        assert refused.value.code == "damaged"
    assert not list(home.rglob("elsewhere*"))


def _named(id_: str) -> Callable[[Transaction], Awaitable[None]]:
    async def fn(tx: Transaction) -> None:
        tx.put(RECORD, KeyRecord(id_))

    return fn
