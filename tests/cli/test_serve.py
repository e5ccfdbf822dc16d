"""`onceward serve`, `config` and `token`, as they are typed."""

import io
import json
import logging
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from onceward import cli
from onceward.app import App
from onceward.clock import Clock
from onceward.errors import TABLE
from onceward.web.auth import Auth, JwtKey
from onceward.web.grants import Grants
from onceward.web.settings import MEANING, Settings, load, option_of

Capture = pytest.CaptureFixture[str]
SECRET = "s" * 32


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In an empty folder, whence modules are imported too; logging stays as it was."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def run(*arguments: str) -> int:
    return cli.main(list(arguments))


def complaint(capsys: Capture, code: str) -> str:
    """The one line that tells of an error."""
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("onceward: ")
    assert shown.err.count("\n") == 1
    assert shown.err.endswith(f" [{code}]\n")
    return shown.err


def configured(capsys: Capture, *arguments: str) -> dict[str, Any]:
    assert run("config", "--json", *arguments) == 0
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--host", "0.0.0.0"), "bad_settings"),
        (("--host", "no such host"), "bad_settings"),
        (("--port", "http"), "bad_settings"),
        (("--database", "mongodb://x"), "bad_engine_url"),
        (("--app", "nothing_there:app"), "bad_settings"),
        (("--app", "json:missing"), "bad_settings"),
        (("--app", "json:loads"), "bad_settings"),
        (("--app", ":"), "bad_settings"),
        (("--config", "missing.toml"), "no_such_file"),
    ],
)
def test_what_it_cannot_start_with_is_told_in_one_line(
    capsys: Capture, arguments: tuple[str, ...], code: str
) -> None:
    assert run("serve", *arguments) == TABLE[code].exit
    complaint(capsys, code)
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    ("arguments", "module", "extra"),
    [
        (("serve",), "uvicorn", "server"),
        (("serve",), "uvloop", "server"),
        (("send", "q", "1"), "aiohttp", "client"),
        (("queues", "list"), "aiohttp", "client"),
        (("token", "ann", "--grant", "all", "--algorithm", "ES256"), "jwt", "server"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_what_is_not_installed_is_named(
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    module: str,
    extra: str,
) -> None:
    _uninstall(monkeypatch, module)
    monkeypatch.setenv("ONCEWARD_TOKEN_KEY", SECRET)
    assert run(*arguments) == TABLE["bad_settings"].exit
    said = f"this needs {module}: pip install 'onceward[{extra}]'"
    assert said in complaint(capsys, "bad_settings")


def test_handlers_need_nothing_of_a_server(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _uninstall(monkeypatch, "uvicorn", "jwt", "aiohttp")
    assert run("work", "json:loads") == TABLE["bad_settings"].exit
    assert "is not an onceward.App" in complaint(capsys, "bad_settings")


def test_a_module_that_nobody_offers_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    _uninstall(monkeypatch, "onceward.web.application")
    with pytest.raises(ModuleNotFoundError):
        run("serve")


LOADED = ("onceward.web.serve", "onceward.cli.client")


def _uninstall(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    for name in list(sys.modules):
        if name in LOADED or name.startswith("onceward.client"):
            monkeypatch.delitem(sys.modules, name)
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize(
    ("keys", "issuers", "says"),
    [(0, 0, "dev mode"), (1, 0, "(1 API key)"), (2, 1, "(2 API keys, 1 token issuer)")],
)
def test_who_may_call_is_said_at_the_start(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, keys: int, issuers: int, says: str
) -> None:
    key = {"name": "a", "digest": "sha256:" + "0" * 64, "scopes": ["all"]}
    issuer = {"algorithm": "HS256", "key": SECRET, "audience": "a"}
    monkeypatch.setenv("ONCEWARD_KEYS", json.dumps([key] * keys))
    monkeypatch.setenv("ONCEWARD_JWT", json.dumps([issuer] * issuers))

    def serve(settings: Any, announce: Any, welcome: Any, found: Any) -> None:
        welcome("http://here/console")
        announce("http://here")

    monkeypatch.setattr("onceward.web.serve.serve", serve)
    assert run("serve") == 0
    said = capsys.readouterr().out
    assert says in said
    once = "opens the console, once" in said
    assert once is (not keys and not issuers)


def test_the_password_of_the_database_is_not_printed(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(settings: Any, announce: Any, welcome: Any, found: Any) -> None:
        welcome("http://here/console")
        announce("http://here")

    monkeypatch.setattr("onceward.web.serve.serve", serve)
    database = "postgresql://ann:hush@db/x?sslpassword=hush"
    assert run("serve", "--database", database) == 0
    said = capsys.readouterr().out
    assert "onceward serves postgresql://…@db/x?sslpassword=… at http://here" in said
    assert "hush" not in said


def test_an_application_that_cannot_be_imported_is_told(capsys: Capture) -> None:
    Path("wrong_app.py").write_text("import nothing_there")
    assert run("serve", "--app", "wrong_app:app") == TABLE["bad_settings"].exit
    assert "nothing_there" in complaint(capsys, "bad_settings")


def test_what_an_application_says_itself_cannot_be_set(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("own_app.py").write_text(
        "import onceward\napp = onceward.App('sqlite:///own.db', name='shop')"
    )
    served = ("serve", "--app", "own_app:app")
    for name in ("database", "name"):
        assert run(*served, f"--{name}", "sqlite:///other.db") == TABLE["bad_settings"].exit
        assert f"leave out --{name} and" in complaint(capsys, "bad_settings")
    monkeypatch.setenv("ONCEWARD_DATABASE", "sqlite:///other.db")
    assert run(*served) == TABLE["bad_settings"].exit
    assert "sets its own database" in complaint(capsys, "bad_settings")

    # What it says itself may be said again, as where it takes that from the environment.
    async def serve(settings: Settings, app: App, *_: object) -> None:
        print(app.name, app.url)

    monkeypatch.setattr("onceward.web.serve._serve", serve)
    monkeypatch.setenv("ONCEWARD_DATABASE", "sqlite:///own.db")
    monkeypatch.setenv("ONCEWARD_NAME", "shop")
    assert run(*served) == 0
    assert capsys.readouterr().out == "shop sqlite:///own.db\n"


@pytest.mark.parametrize("command", ["serve", "config", "token"])
def test_each_command_explains_itself(capsys: Capture, command: str) -> None:
    assert run(command, "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"usage: onceward {command}" in text
    if command != "token":
        left_out = {"keys", "jwt"}
        if command == "serve":
            left_out |= {"health_host", "health_port"}
        for name in MEANING:
            assert (option_of(name) in text) is (name not in left_out), name


def test_config_lists_every_setting_and_where_it_comes_from(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("onceward.toml").write_text('log = "json"\nport = 1\n')
    monkeypatch.setenv("ONCEWARD_PORT", "2")
    monkeypatch.setenv("ONCEWARD_NAME", "n1")
    found = configured(capsys, "--port", "3", "--telemetry")
    assert list(found) == list(MEANING)
    assert found["port"] == {"name": "port", "value": 3, "source": "--port"}
    assert found["name"] == {"name": "name", "value": "n1", "source": "ONCEWARD_NAME"}
    assert found["log"] == {"name": "log", "value": "json", "source": "onceward.toml"}
    assert found["telemetry"]["value"] is True
    assert found["host"] == {"name": "host", "value": "127.0.0.1", "source": "default"}


def test_config_is_shown_as_a_table(capsys: Capture) -> None:
    assert run("config") == 0
    text = capsys.readouterr().out
    for name, meaning in MEANING.items():
        assert re.search(rf"^{name}\t.*\tdefault\t{meaning.split()[0]}", text, re.MULTILINE)


def test_config_keeps_secrets(capsys: Capture) -> None:
    Path("onceward.toml").write_text(
        'database = "postgresql://ann:pa@ss@db.example/shop"\n'
        f'[[keys]]\nname = "ann"\ndigest = "sha256:{"0" * 64}"\nscopes = ["all"]\n'
        f'[[jwt]]\nalgorithm = "HS256"\nkey = "{SECRET}"\naudience = "us"\n'
    )
    found = configured(capsys)
    assert found["database"]["value"] == "postgresql://…@db.example/shop"
    assert found["keys"]["value"] == [{"name": "ann", "scopes": ["all"]}]
    assert found["jwt"]["value"] == [{"algorithm": "HS256", "audience": "us"}]
    assert run("config") == 0
    shown = capsys.readouterr().out
    for secret in (SECRET, "ss@", "0" * 20):
        assert secret not in shown


@pytest.mark.parametrize("command", ["config", "serve"])
def test_wrong_settings_are_told(capsys: Capture, command: str) -> None:
    Path("onceward.toml").write_text("colour = 1")
    assert run(command) == TABLE["bad_settings"].exit
    assert "colour" in complaint(capsys, "bad_settings")


@pytest.mark.parametrize("name", ["billing", 'a "quoted" name\\', "ü [[keys]] 😀"])
def test_a_new_key_fits_into_the_settings(capsys: Capture, name: str) -> None:
    assert run("token", name, "--scope", "send:invoices.*", "--scope", "lock:b") == 0
    out = capsys.readouterr().out
    key, settings = out.splitlines()[0], out[out.index("[[keys]]") :]
    assert re.fullmatch("ow_[0-9a-f]{64}", key)
    assert tomllib.loads(settings)["keys"][0]["name"] == name
    Path("onceward.toml").write_text(settings, encoding="utf-8")
    auth = Auth(load({}, {})[0].keys)
    caller = auth.caller(f"Bearer {key}", 0)
    assert caller.name == name
    assert caller.grants == Grants.of(("send:invoices.*", "lock:b"))
    # It is another one each time.
    assert run("token", name, "--scope", "all") == 0
    assert capsys.readouterr().out.splitlines()[0] != key


def test_a_token_is_signed_with_a_key_from_a_file(capsys: Capture) -> None:
    Path("secret").write_text(f"{SECRET}\n")
    options = ("--key-file", "secret", "--audience", "us", "--issuer", "i", "--key-id", "k")
    grants = ("--grant", "send:a", "--grant", "work:x all", "--grant", "read:*")
    assert run("token", "ann", *grants, *options, "--expires-s", "60") == 0
    token = capsys.readouterr().out.strip()
    auth = Auth(jwt_keys=[JwtKey("HS256", SECRET, "us", issuer="i", id="k")])
    caller = auth.caller(f"Bearer {token}", Clock().now_ms())
    assert caller.name == "ann"
    assert caller.grants.named == {("send", "a"), ("work", "x all"), ("read", "*")}
    assert not caller.may("read", "anything")
    claims = jwt.decode(token, SECRET, ["HS256"], audience="us")
    assert claims["exp"] - claims["iat"] == 60


def test_the_key_for_tokens_comes_from_the_environment_or_standard_input(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCEWARD_TOKEN_KEY", SECRET)
    assert run("token", "ann", "--grant", "all") == 0
    monkeypatch.setenv("ONCEWARD_TOKEN_KEY", "x" * 32)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{SECRET}\n"))
    assert run("token", "ann", "--grant", "all", "--key-file", "-") == 0
    for token in capsys.readouterr().out.split():
        claims = jwt.decode(token, SECRET, ["HS256"], audience="onceward")
        assert claims["authorization_details"] == [{"type": "onceward", "actions": ["all"]}]


def test_a_secret_cannot_be_given_where_other_users_see_it(capsys: Capture) -> None:
    assert run("token", "ann", "--grant", "read:x", "--secret", SECRET) == 2
    assert "unknown option --secret" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("ann",), "bad_request"),
        (("", "--scope", "all"), "bad_settings"),
        (("x" * 300, "--scope", "all"), "bad_settings"),
        (("ann", "--scope", "everything"), "bad_settings"),
        (("ann", "--scope", "all", "--grant", "all"), "bad_request"),
        (("ann", "--scope", "all", "--key-file", "secret"), "bad_request"),
        (("ann", "--grant", "all"), "bad_settings"),
        (("ann", "--grant", "all", "--key-file", "short"), "bad_settings"),
        (("ann", "--grant", "all", "--key-file", "missing"), "no_such_file"),
        (("ann", "--grant", "all", "--key-file", "."), "bad_settings"),
        (("ann", "--grant", "all", "--key-file", "secret", "--algorithm", "ES256"), "bad_settings"),
        (("ann", "--grant", "all", "--key-file", "secret", "--expires-s", "0"), "bad_value"),
        (("ann", "--grant", "read", "--key-file", "secret"), "bad_value"),
        (("ann", "--grant", "reed:x", "--key-file", "secret"), "bad_value"),
        (("", "--grant", "all", "--key-file", "secret"), "bad_name"),
    ],
)
def test_a_token_that_could_not_be_used_is_refused(
    capsys: Capture, arguments: tuple[str, ...], code: str
) -> None:
    Path("secret").write_text(SECRET)
    Path("short").write_text("short")
    assert run("token", *arguments) == TABLE[code].exit
    complaint(capsys, code)
