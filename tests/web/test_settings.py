"""Settings come from a file, the environment and flags, of which the last counts."""

from pathlib import Path
from typing import Any

import pytest

from onceward.errors import OncewardError
from onceward.web.auth import ApiKey, JwtKey
from onceward.web.settings import MEANING, Settings, exposed, load


def sources(found: list[Any]) -> dict[str, str]:
    return {setting.name: setting.source for setting in found}


def refusal(*args: Any, code: str = "bad_settings") -> str:
    with pytest.raises(OncewardError) as refused:
        load(*args)
    assert refused.value.code == code
    return refused.value.message


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_there_are_defaults_for_everything() -> None:
    settings, found = load({}, {})
    assert settings == Settings()
    assert set(sources(found).values()) == {"default"}
    assert list(sources(found)) == list(MEANING) == list(Settings.__struct_fields__)


def test_the_last_of_file_environment_and_flags_counts() -> None:
    Path("onceward.toml").write_text('port = 1\nhost = "a"\nlog = "json"\n')
    environment = {"ONCEWARD_PORT": "2", "ONCEWARD_HOST": "b", "ONCEWARD_OTHER": "x"}
    settings, found = load({"port": "3", "host": None}, environment)
    assert (settings.port, settings.host, settings.log) == (3, "b", "json")
    told = sources(found)
    assert (told["port"], told["host"]) == ("--port", "ONCEWARD_HOST")
    assert (told["log"], told["name"]) == ("onceward.toml", "default")


def test_a_file_can_be_named_by_flag_or_environment() -> None:
    Path("a.toml").write_text("port = 1")
    Path("b.toml").write_text("port = 2")
    Path("onceward.toml").write_text("port = 3")
    environment = {"ONCEWARD_CONFIG": "a.toml"}
    assert load({}, environment)[0].port == 1
    settings, found = load({}, environment, "b.toml")
    assert (settings.port, sources(found)["port"]) == (2, "b.toml")


def test_keys_come_as_tables_or_as_json() -> None:
    digest = "sha256:" + "0" * 64
    Path("onceward.toml").write_text(
        f'[[keys]]\nname = "ü"\ndigest = "{digest}"\nscopes = ["all"]\n'
        '[[jwt]]\nalgorithm = "HS256"\nkey = "k"\naudience = "a"\n',
        encoding="utf-8",
    )
    settings, _ = load({}, {})
    assert settings.keys == (ApiKey("ü", digest, ("all",)),)
    assert settings.jwt == (JwtKey("HS256", "k", "a"),)
    assert load({}, {"ONCEWARD_KEYS": "[]"})[0].keys == ()


def test_lists_come_as_lists_or_with_commas() -> None:
    Path("onceward.toml").write_text('webhook_allow = ["10.0.0.0/8"]\nwebhook_ports = [443]')
    settings, _ = load({}, {})
    assert (settings.webhook_allow, settings.webhook_ports) == (("10.0.0.0/8",), (443,))
    settings, _ = load({"webhook_ports": "80"}, {"ONCEWARD_WEBHOOK_ALLOW": "a, b:8080,[::1]:*"})
    assert settings.webhook_allow == ("a", "b:8080", "[::1]:*")
    assert settings.webhook_ports == (80,)
    assert load({"webhook_allow": ""}, {})[0].webhook_allow == ()


BAD: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    "port that is no number": ({"port": "http"}, {}, "--port"),
    "port too large": ({"port": "65536"}, {}, "--port"),
    "port in the environment": ({}, {"ONCEWARD_PORT": "-1"}, "ONCEWARD_PORT"),
    "log of another form": ({"log": "xml"}, {}, "--log"),
    "port of webhooks that is none": ({"webhook_ports": "80,0"}, {}, "--webhook-ports"),
    "ports that are no numbers": ({"webhook_ports": "http"}, {}, "--webhook-ports"),
    "calls that are never tried": ({"webhook_attempts": "0"}, {}, "--webhook-attempts"),
    "rate below nothing": ({"webhook_rate": "-1"}, {}, "--webhook-rate"),
    "rate that is no number": ({"webhook_rate": "nan"}, {}, "--webhook-rate"),
    "no time to answer": ({"webhook_timeout_s": "0"}, {}, "--webhook-timeout-s"),
    "no time to connect": ({}, {"ONCEWARD_WEBHOOK_CONNECT_S": "0"}, "ONCEWARD_WEBHOOK_CONNECT_S"),
    "no calls at once": ({"webhook_calls": "0"}, {}, "--webhook-calls"),
    "no name": ({"name": ""}, {}, "--name"),
    "drain that never ends": ({"drain_s": "1e9"}, {}, "--drain-s"),
    "truth of another kind": ({}, {"ONCEWARD_TELEMETRY": "maybe"}, "ONCEWARD_TELEMETRY"),
    "keys that are no JSON": ({}, {"ONCEWARD_KEYS": "ow_1"}, "ONCEWARD_KEYS"),
    "keys without digest": ({}, {"ONCEWARD_KEYS": '[{"name":"a"}]'}, "digest"),
    "key with more": (
        {},
        {"ONCEWARD_KEYS": '[{"name":"a","digest":"d","scopes":[],"key":"ow_1"}]'},
        "ONCEWARD_KEYS",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_wrong_setting_is_refused_and_says_where_it_comes_from(what: str) -> None:
    flags, environment, where = BAD[what]
    message = refusal(flags, environment)
    assert where in message
    assert "ow_1" not in message  # it may be secret


def test_a_setting_that_is_none_is_refused_with_its_file() -> None:
    Path("odd.toml").write_text("prot = 1\n")
    with pytest.raises(OncewardError, match=r"unknown setting 'prot' \(from odd\.toml\)"):
        load({}, {}, file="odd.toml")


def test_what_may_stand_there_is_said() -> None:
    assert "; Format of the log: text or json" in refusal({"log": "xml"}, {})


def test_a_file_that_cannot_be_used_is_refused() -> None:
    Path("wrong.toml").write_text("port = ")
    Path("unknown.toml").write_text("prot = 1")
    Path("binary.toml").write_bytes(b"\xff\xfe")
    Path("folder.toml").mkdir()
    for name in ("wrong", "binary", "folder"):
        assert f"{name}.toml" in refusal({}, {}, f"{name}.toml")
    assert "prot" in refusal({}, {}, "unknown.toml")
    assert "missing.toml" in refusal({}, {}, "missing.toml", code="no_such_file")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("postgresql://db/x?schema=s", "postgresql://db/x?schema=s"),
        ("postgresql://u:hush@db/x", "postgresql://…@db/x"),
        ("postgresql://u:hu@sh@db/x", "postgresql://…@db/x"),
        ("postgresql://db/x?user=u&password=hush", "postgresql://db/x?user=u&password=…"),
        ("postgresql://u@a,b/x?sslpassword=hush", "postgresql://…@a,b/x?sslpassword=…"),
    ],
)
def test_a_database_is_shown_without_its_password(url: str, shown: str) -> None:
    _, found = load({"database": url}, {})
    [database] = [setting for setting in found if setting.name == "database"]
    assert (database.plain, database.shown) == (shown, shown)


def test_a_settings_file_for_everyone_that_holds_secrets_draws_a_warning() -> None:
    file = Path("onceward.toml")
    file.write_text(
        'database = "postgresql://u:hush@db/x"\n[[jwt]]\nalgorithm = "HS256"\n'
        f'key = "{32 * "k"}"\naudience = "a"\n'
    )
    file.chmod(0o644)
    [warning] = exposed(load({}, {})[1])
    assert "onceward.toml" in warning
    assert "database, jwt" in warning
    assert "hush" not in warning
    file.chmod(0o640)
    assert exposed(load({}, {})[1]) == []
    file.write_text('database = "postgresql://db/x"\nport = 1\n')
    file.chmod(0o644)
    assert exposed(load({}, {})[1]) == []


def test_a_password_on_the_command_line_draws_a_warning() -> None:
    url = "postgresql://u:hush@db/x"
    [warning] = exposed(load({"database": url}, {})[1])
    assert "process list" in warning
    assert "hush" not in warning
    assert exposed(load({}, {"ONCEWARD_DATABASE": url})[1]) == []
