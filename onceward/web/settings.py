"""Settings of the server, from a file, the environment and the command line.

The command line has precedence over the environment, and the environment over the file.
"""

import os
import stat
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from onceward import limits
from onceward.engine import DEFAULT_URL
from onceward.errors import OncewardError
from onceward.redaction import redact_url
from onceward.web.auth import ApiKey, JwtKey
from onceward.webhooks import retries

FILE = "onceward.toml"
PREFIX = "ONCEWARD_"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a server."""

    database: str = DEFAULT_URL
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8080
    app: str = ""
    queues: tuple[str, ...] = ()
    concurrency: Annotated[int, Meta(ge=0, le=100_000)] = 0
    name: Annotated[str, Meta(min_length=1, max_length=limits.APP_CHARS_MAX)] = "server"
    keys: tuple[ApiKey, ...] = ()
    jwt: tuple[JwtKey, ...] = ()
    server_key: tuple[str, ...] = ()
    server_key_file: str = ""
    log: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    drain_s: Annotated[float, Meta(ge=0, le=3_600)] = limits.DRAIN_S
    health_host: str = "127.0.0.1"
    health_port: Annotated[int, Meta(ge=0, le=65_535)] | None = None
    telemetry: bool = False
    webhooks: bool = True
    webhook_allow: tuple[str, ...] = ()
    webhook_ports: tuple[Annotated[int, Meta(ge=1, le=65_535)], ...] = (80, 443)
    webhook_rate: Annotated[float, Meta(ge=0, le=limits.QUEUE_RATE_MAX)] = 0.0
    webhook_pauses_s: tuple[Annotated[float, Meta(ge=0.1, le=86_400)], ...] = retries.PAUSES_S
    webhook_attempts: Annotated[int, Meta(ge=1, le=limits.OUTWARD_ATTEMPTS_MAX)] = retries.ATTEMPTS
    webhook_connect_s: Annotated[float, Meta(gt=0, le=300)] = limits.OUTWARD_CONNECT_S
    webhook_timeout_s: Annotated[float, Meta(gt=0, le=300)] = limits.OUTWARD_TOTAL_S
    webhook_calls: Annotated[int, Meta(ge=1, le=100_000)] = limits.OUTWARD_CALLS_MAX
    webhook_calls_per_host: Annotated[int, Meta(ge=1, le=limits.SENDS_PER_HOST_MAX)] = (
        limits.HOST_REQUESTS_MAX
    )
    timers_append_id: bool = False
    advertise: str = ""
    origins: tuple[str, ...] = ()
    frame_rate: Annotated[float, Meta(ge=1, le=1e9)] = limits.FRAMES_PER_S
    request_rate: Annotated[float, Meta(ge=0, le=limits.QUEUE_RATE_MAX)] = 0.0
    request_burst: Annotated[int, Meta(ge=0, le=limits.QUEUE_RATE_MAX)] = 0
    metrics_auth: bool = False
    connections: Annotated[int, Meta(ge=1, le=1_000_000)] = limits.CONNECTIONS_MAX
    connections_per_address: Annotated[int, Meta(ge=0, le=1_000_000)] = (
        limits.CONNECTIONS_PER_ADDRESS
    )
    proxies: tuple[str, ...] = ()

    @property
    def dev(self) -> bool:
        """Whether no credentials are needed."""
        return not self.keys and not self.jwt


MEANING = {
    "database": "Database URL: sqlite:///FILE, memory:// or postgresql://…",
    "host": "Address to listen on; others than loopback require API keys",
    "port": "Port to listen on; 0: any free port",
    "app": "App whose handlers run in this process, as in shop:app",
    "queues": "Queues whose handlers run in this process; all by default",
    "concurrency": "Jobs of each queue that run at once in this process; 0: as its handler "
    "declares",
    "name": "Name of this node",
    "keys": "API keys: name, digest and scopes of each, from `onceward token`",
    "jwt": "Token issuers: algorithm, key, audience; optionally issuer, id, ceiling, scopes",
    "server_key": "Key that signs sessions and encrypts stored secrets: 64 hex digits, from "
    "`onceward server-key new`; of several, the first encrypts",
    "server_key_file": "File with server keys, one on each line; by default, the server creates "
    "one in ~/.local/state/onceward/keys",
    "log": "Format of the log: text or json",
    "log_level": "Level of the log: debug, info, warning or error",
    "drain_s": "Time for requests and handlers to finish when the process stops",
    "health_host": "Address of the health checks of `onceward work`",
    "health_port": "Port of the health checks and metrics of `onceward work`; 0: any free port; "
    "none by default",
    "telemetry": "Create OpenTelemetry spans of requests",
    "webhooks": "Make the calls of timers on this server",
    "webhook_allow": "Private networks, addresses and names that can be called, as in "
    "10.1.0.0/16,intranet:8080",
    "webhook_ports": "Ports that can be called, besides those in webhook_allow",
    "webhook_rate": "Maximum number of calls per second, on all nodes together; 0: no limit",
    "webhook_pauses_s": "Pauses between attempts of a call, unless its timer or endpoint has its "
    "own; the last one repeats",
    "webhook_attempts": "Attempts of a call, unless its timer or endpoint specifies them",
    "webhook_connect_s": "Time limit for a connection",
    "webhook_timeout_s": "Time limit for a whole response",
    "webhook_calls": "Maximum number of concurrent calls",
    "webhook_calls_per_host": "Maximum number of concurrent calls to one receiver; fewer while it "
    "responds slowly or with errors",
    "timers_append_id": "Append the id of timers in the plain form to their URL",
    "advertise": "Address of this node for other nodes on the same database, if it is not host "
    "and port, as in http://10.0.0.7:8080",
    "origins": "Origins of pages that can connect by WebSocket besides its own, as in "
    "https://app.example.com; *: all",
    "frame_rate": "Maximum number of frames per second from one WebSocket connection",
    "request_rate": "Maximum number of HTTP requests per second of each caller, on average; 0: no "
    "limit",
    "request_burst": "Maximum number of requests at once; 0: as many as in a second",
    "metrics_auth": "Require an API key with the scope metrics:* for /metrics",
    "connections": "Maximum number of connections; idle ones without credentials are closed for "
    "new ones",
    "connections_per_address": "Maximum number of connections without credentials from one "
    "address; 0: no limit",
    "proxies": "Addresses and networks of trusted proxies, as in 10.0.0.7,10.1.0.0/16: "
    "connections_per_address does not apply to them, and X-Forwarded-Proto and client certificate "
    "headers are accepted from them",
}
SECRET = ("keys", "jwt", "server_key")
SWITCHES = ("telemetry", "webhooks", "timers_append_id", "metrics_auth")
LISTS = (
    "queues",
    "webhook_allow",
    "webhook_ports",
    "webhook_pauses_s",
    "origins",
    "server_key",
    "proxies",
)


class Setting(NamedTuple):
    """One setting and its source."""

    name: str
    value: Any
    source: str

    @property
    def plain(self) -> Any:
        """The value with secrets masked."""
        value = self.value
        if self.name == "keys":
            return [{"name": key.name, "scopes": list(key.scopes)} for key in value]
        if self.name == "jwt":
            return [
                {
                    "algorithm": key.algorithm,
                    "audience": key.audience,
                    **({} if key.ceiling is None else {"ceiling": list(key.ceiling)}),
                    **({"scopes": key.scopes} if key.scopes else {}),
                }
                for key in value
            ]
        if self.name == "server_key":
            return ["…"] * len(value)
        return redact_url(value) if self.name == "database" else value

    @property
    def shown(self) -> str:
        """The masked value as text."""
        if self.name in SECRET:
            return msgspec.json.encode(self.plain).decode() if self.value else ""
        return ",".join(map(str, self.value)) if self.name in LISTS else str(self.plain)

    @property
    def secret(self) -> bool:
        """Whether the value grants access to the server or the database."""
        if self.name == "jwt":  # other algorithms have public keys
            return any(key.algorithm == "HS256" for key in self.value)
        if self.name == "server_key":
            return bool(self.value)
        return self.name == "database" and redact_url(self.value) != self.value

    @property
    def meaning(self) -> str:
        return MEANING[self.name]


def load(
    flags: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
    file: str | None = None,
) -> tuple[Settings, list[Setting]]:
    """Load the settings, with the source of each. Raises `bad_settings`, `no_such_file`."""
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
            values[name], sources[name] = value, option_of(name)
    for name in LISTS:
        if isinstance(values.get(name), str):
            values[name] = [part.strip() for part in values[name].split(",") if part.strip()]
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise OncewardError(
            f"invalid settings: {_why(str(error), sources)}", code="bad_settings"
        ) from error
    return settings, [
        Setting(name, getattr(settings, name), sources.get(name, "default"))
        for name in Settings.__struct_fields__
    ]


def option_of(name: str) -> str:
    """The command line option of a setting. `--queue` is repeated, once for each queue."""
    return "--queue" if name == "queues" else f"--{name.replace('_', '-')}"


def exposed(found: Iterable[Setting]) -> list[str]:
    """Warnings about secrets in the settings that other users of this machine can read."""
    secret = [setting for setting in found if setting.secret]
    warnings = [
        f"the database password is in the process list, since it came by {setting.source}; give "
        f"it by {PREFIX}DATABASE or in the settings file"
        for setting in secret
        if setting.source == "--database"
    ]
    files: dict[str, list[str]] = {}
    for setting in secret:
        if setting.source != "default" and not setting.source.startswith(("--", PREFIX)):
            files.setdefault(setting.source, []).append(setting.name)
    for path, names in files.items():
        if _for_everyone(path):
            warnings.append(
                f"every user of this machine can read {path}, which holds secrets "
                f"({', '.join(names)}); run `chmod o= {path}`"
            )
    return warnings


def _for_everyone(path: str) -> bool:
    try:
        return bool(Path(path).stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _why(error: str, sources: Mapping[str, str]) -> str:
    """The invalid value, its source, and the expected values."""
    unknown = [name for name in sources if name not in Settings.__struct_fields__]
    if unknown and "unknown field" in error and "`$" not in error.partition(" - ")[2]:
        return f"unknown setting {unknown[0]!r} (from {sources[unknown[0]]})"
    name = error.partition("`$.")[2].split("`")[0].split("[")[0]
    if name not in sources:
        return error
    told = f"{error} (from {sources[name]})"
    return f"{told}; {MEANING[name]}" if "enum" in error else told


def _from_file(path: str | None) -> dict[str, Any]:
    if path is None and not Path(FILE).exists():
        return {}
    try:
        return tomllib.loads(Path(path or FILE).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise OncewardError(
            f"file {path} not found; check the path", code="no_such_file"
        ) from error
    except (OSError, ValueError) as error:
        raise OncewardError(
            f"cannot read {path or FILE}: {error}. Correct the file or its permissions",
            code="bad_settings",
        ) from error


def _from_text(name: str, text: str) -> Any:
    if name not in SECRET or name in LISTS:
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise OncewardError(
            f"{PREFIX}{name.upper()} must be a JSON list: {error}", code="bad_settings"
        ) from error
