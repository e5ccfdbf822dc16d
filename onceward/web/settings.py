"""The server's settings: from a file, the environment and the command line, in that order, so
that the last one counts."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from onceward import limits
from onceward.errors import OncewardError
from onceward.web.auth import ApiKey, JwtKey

FILE = "onceward.toml"
PREFIX = "ONCEWARD_"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a server runs."""

    database: str = "sqlite:///onceward.db"
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8080
    app: str = ""
    name: Annotated[str, Meta(min_length=1, max_length=limits.APP_CHARS_MAX)] = "server"
    keys: tuple[ApiKey, ...] = ()
    jwt: tuple[JwtKey, ...] = ()
    log: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    drain_s: Annotated[float, Meta(ge=0, le=3_600)] = limits.DRAIN_S
    telemetry: bool = False


MEANING = {
    "database": "the engine's address: sqlite:///FILE, memory:// or postgresql://…",
    "host": "the address to listen at; beyond this machine only with keys",
    "port": "0 takes any that is free",
    "app": "module:name of an App whose handlers run in this process",
    "name": "what this node is called among others",
    "keys": "API keys: name, digest and scopes of each; `onceward token` makes one",
    "jwt": "keys of token issuers: algorithm, key, audience, and maybe issuer and id",
    "log": "text or json",
    "log_level": "debug, info, warning or error",
    "drain_s": "how long requests and handlers may take to finish when the server stops",
    "telemetry": "whether to make OpenTelemetry spans",
}
SECRET = ("keys", "jwt")


class Setting(NamedTuple):
    """One setting, and where it comes from."""

    name: str
    value: Any
    source: str


def load(
    flags: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
    file: str | None = None,
) -> tuple[Settings, list[Setting]]:
    """The settings, and where each comes from. Raises `bad_settings`, `no_such_file`."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    path = file or environment.get(f"{PREFIX}CONFIG")
    for name, value in _from_file(path).items():
        values[name], sources[name] = value, path or FILE
    for name in Settings.__struct_fields__:
        variable = f"{PREFIX}{name.upper()}"
        if variable in environment:
            values[name] = _from_text(name, environment[variable])
            sources[name] = variable
    for name, value in flags.items():
        if value is not None:
            values[name], sources[name] = value, f"--{name.replace('_', '-')}"
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise OncewardError(
            f"the settings are wrong: {_why(str(error), sources)}", code="bad_settings"
        ) from error
    return settings, [
        Setting(name, getattr(settings, name), sources.get(name, "default"))
        for name in Settings.__struct_fields__
    ]


def _why(error: str, sources: Mapping[str, str]) -> str:
    """What is wrong, where it comes from, and what may stand there."""
    unknown = [name for name in sources if name not in Settings.__struct_fields__]
    if unknown and "unknown field" in error and "`$" not in error.partition(" - ")[2]:
        return f"there is no setting {unknown[0]!r} (from {sources[unknown[0]]})"
    name = error.partition("`$.")[2].split("`")[0].split("[")[0]
    if name not in sources:
        return error
    told = f"{error} (from {sources[name]})"
    return f"{told}; {name} is {MEANING[name]}" if "enum" in error else told


def _from_file(path: str | None) -> dict[str, Any]:
    if path is None and not Path(FILE).exists():
        return {}
    try:
        return tomllib.loads(Path(path or FILE).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise OncewardError(f"there is no file {path}", code="no_such_file") from error
    except (OSError, ValueError) as error:
        raise OncewardError(
            f"{path or FILE} cannot be read: {error}", code="bad_settings"
        ) from error


def _from_text(name: str, text: str) -> Any:
    if name not in SECRET:
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise OncewardError(
            f"{PREFIX}{name.upper()} is to be a JSON list: {error}", code="bad_settings"
        ) from error
