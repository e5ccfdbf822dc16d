"""Commands that start a server or workers, and create their configuration."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from onceward import ids, tokens
from onceward.cli.display import complain, print_json, print_table
from onceward.cli.parser import Parser
from onceward.errors import OncewardError
from onceward.redaction import redact_url
from onceward.web.auth import KEY_PREFIX, admit_caller, digest_of
from onceward.web.grants import admit_scopes
from onceward.web.settings import (
    FILE,
    MEANING,
    PREFIX,
    SECRET,
    SWITCHES,
    Settings,
    exposed,
    load,
    option_of,
)

# 256 random bits.
_KEY_BYTES = 32
# Signs tokens.
_KEY_VARIABLE = f"{PREFIX}TOKEN_KEY"
# The settings that `onceward work` has as options, besides `app`.
_OF_WORK = (
    *("queues", "concurrency", "drain_s", "health_host", "health_port", "metrics_auth"),
    *("log", "log_level", "server_key_file"),
)


def fill_serve(parser: Parser) -> None:
    """Add the options of `onceward serve`."""
    parser.description = (
        "Run the server: the HTTP API, and the handlers of an application if one is named. It "
        "needs no API keys if it listens on the loopback address (dev mode). SIGTERM and Ctrl-C "
        "stop it after running requests are answered."
    )
    parser.epilog = "example: onceward serve --database sqlite:///app.db --port 8080"
    only_work = ("health_host", "health_port")
    add_settings(parser, [name for name in Settings.__struct_fields__ if name not in only_work])
    parser.set_defaults(run=_serve)


def fill_config(parser: Parser) -> None:
    """Add the options of `onceward config`."""
    parser.description = (
        f"List all settings, their values and their sources. Settings are read from a file "
        f"({FILE}, or --config), then from the environment ({PREFIX}…), then from the command "
        "line. The last one counts."
    )
    parser.epilog = "example: onceward config --config /etc/onceward/onceward.toml"
    add_settings(parser)
    parser.add_argument("--json", action="store_true", help="Print JSON")
    parser.set_defaults(run=_config)


def fill_token(parser: Parser) -> None:
    """Add the options of `onceward token`."""
    parser.description = (
        "Create an API key for a program (--scope). It is shown once; the settings of the server "
        "get its digest. Or sign a JSON Web Token for a user (--grant), with the secret or "
        f"private key in --key-file or the environment variable {_KEY_VARIABLE}."
    )
    parser.epilog = "example: onceward token billing --scope 'send:invoices.*' --scope lock:billing"
    add = parser.add_argument
    add("name", metavar="NAME", help="Name of the program or user")
    help_ = "Scope of the API key: send:orders.*, or all; repeatable"
    add("--scope", action="append", default=[], metavar="ACTION:PATTERN", help=help_)
    help_ = "Grant of the token, name taken literally; repeatable"
    add("--grant", action="append", default=[], metavar="ACTION:NAME", help=help_)
    add("--key-file", metavar="FILE", help="Secret or private key; - reads standard input")
    algorithms = ", ".join(tokens.ALGORITHMS)
    help_ = f"Algorithm of the token: {algorithms} [HS256]"
    add("--algorithm", default="HS256", choices=tokens.ALGORITHMS, metavar="NAME", help=help_)
    add("--audience", default="onceward", help="Audience of the token [onceward]")
    add("--issuer", help="Issuer of the token")
    add("--key-id", metavar="ID", help="Key ID of the token")
    help_ = "Lifetime of the token in seconds [3600]"
    add("--expires-s", type=int, default=3_600, metavar="S", help=help_)
    parser.set_defaults(run=_token)


def fill_work(parser: Parser) -> None:
    """Add the options of `onceward work`."""
    parser.description = (
        "Run the handlers of an application until SIGTERM or Ctrl-C, without the HTTP API. On "
        "PostgreSQL, any number of such processes share the work. SIGTERM stops new jobs; running "
        "ones have --drain-s to finish, and are then released to other processes. A second signal "
        "releases them at once. The exit code is 0 after that, 65 if another process owns the "
        "database, 74 if storage failed, 75 if the database cannot be reached, and 78 for wrong "
        "settings."
    )
    parser.epilog = "example: onceward work shop:app --queue mails --health-port 9090"
    help_ = "The App object, as in shop:app; or the setting app"
    parser.add_argument("app", metavar="MODULE:NAME", nargs="?", help=help_)
    add_settings(parser, _OF_WORK)
    parser.set_defaults(run=_work)


def add_settings(
    parser: Parser,
    names: Sequence[str] = Settings.__struct_fields__,
    defaults: Settings | None = None,
) -> None:
    """Add options for settings."""
    help_ = f"File with settings [{FILE}, if it exists]"
    parser.add_argument("--config", metavar="FILE", help=help_)
    defaults = defaults or Settings()
    for name in names:
        if name not in SECRET:
            option = option_of(name)
            help_ = _help(name, getattr(defaults, name))
            if name == "queues":
                help_ = f"{help_}; repeatable"
                parser.add_argument(option, action="append", dest=name, metavar="NAME", help=help_)
            elif name in SWITCHES:
                action = argparse.BooleanOptionalAction
                parser.add_argument(option, action=action, help=help_)
            else:
                number = isinstance(getattr(Settings(), name), int | float)
                metavar = name.rpartition("_")[2].upper()
                metavar = "N" if number and metavar != "S" else metavar
                parser.add_argument(option, metavar=metavar, help=help_)


def _help(name: str, default: Any) -> str:
    default = "on" if default is True else default
    shown = "" if isinstance(default, tuple) or default in ("", 0, None) else f" [{default}]"
    return f"{MEANING[name]}{shown}".replace("%", "%%")


def flags(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings on the command line; None for those that are not there."""
    names = [name for name in Settings.__struct_fields__ if name not in SECRET]
    return {name: getattr(arguments, name, None) for name in names}


def _serve(arguments: argparse.Namespace) -> int:
    settings, found = load(flags(arguments), file=arguments.config)
    from onceward.web.serve import serve  # here: what only a server needs takes long to load

    sys.path.insert(0, "")

    links: list[str] = []

    def announce(url: str) -> None:
        mode = "dev mode: no keys, this machine only" if settings.dev else _callers(settings)
        served = settings.app or redact_url(settings.database)
        print(f"onceward serves {served} at {url} ({mode})")
        print(f"  {links[0]} opens the console{', once' if settings.dev else ''}")
        print(f"  {url}/docs shows the API; Ctrl-C stops it", flush=True)

    serve(settings, announce, links.append, found)
    return 0


def _callers(settings: Settings) -> str:
    """The number of API keys and token issuers."""
    kinds = (("API key", len(settings.keys)), ("token issuer", len(settings.jwt)))
    return ", ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in kinds if count)


def _config(arguments: argparse.Namespace) -> int:
    _, found = load(flags(arguments), file=arguments.config)
    for warning in exposed(found):
        complain(f"warning: {warning}")
    if arguments.json:
        shown = [{"name": s.name, "value": s.plain, "source": s.source} for s in found]
        return print_json(shown)
    rows = [(one.name, one.shown, one.source, one.meaning) for one in found]
    print_table(("setting", "value", "source", "meaning"), rows)
    return 0


def _token(arguments: argparse.Namespace) -> int:
    if bool(arguments.scope) == bool(arguments.grant):
        raise OncewardError(
            "use --scope (such as --scope 'send:orders.*') for an API key, or --grant (such as "
            "--grant write:board.7) for a token"
        )
    if arguments.grant:
        print(_signed(arguments))
        return 0
    if arguments.key_file is not None:
        raise OncewardError("--key-file signs a token; use it with --grant, not --scope")
    name, scopes = arguments.name, arguments.scope
    admit_caller(name)
    admit_scopes(scopes)
    key = KEY_PREFIX + ids.random_bytes(_KEY_BYTES).hex()
    listed = ", ".join(_quoted(scope) for scope in scopes)
    print(f"{key}\n")
    print(f"Store the key now: it is shown once. Add this to {FILE}:\n")
    print(f'[[keys]]\nname = {_quoted(name)}\ndigest = "{digest_of(key)}"\nscopes = [{listed}]')
    return 0


def _quoted(text: str) -> str:
    """A text as a TOML string."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def _signed(arguments: argparse.Namespace) -> str:
    pairs = [grant.partition(":") for grant in arguments.grant]
    return tokens.sign(
        _signing_key(arguments.key_file),
        user=arguments.name,
        grants=[tokens.Grant(action, name) for action, _, name in pairs],
        expires_s=arguments.expires_s,
        audience=arguments.audience,
        issuer=arguments.issuer,
        key_id=arguments.key_id,
        algorithm=arguments.algorithm,
    )


def _signing_key(file: str | None) -> str:
    """Never from the command line, which every user of the machine can read."""
    if file is None:
        key = os.environ.get(_KEY_VARIABLE)
        if key is None:
            raise OncewardError(
                f"no key to sign with; use --key-file or set {_KEY_VARIABLE}", code="bad_settings"
            )
        return key
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise OncewardError(
            f"key file {file!r} not found; check the path", code="no_such_file"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise OncewardError(
            f"cannot read {file!r}: {error}; check its permissions", code="bad_settings"
        ) from error
    return text.rstrip("\r\n")


def _work(arguments: argparse.Namespace) -> int:
    settings, found = load(flags(arguments), file=arguments.config)
    if not settings.app:
        raise OncewardError(
            f"no application to run; use `onceward work shop:app`, or set app in {FILE}",
            code="bad_settings",
        )
    from onceward.web.work import work  # here: it takes long to load

    sys.path.insert(0, "")

    def announce(url: str) -> None:
        queues = f" in {', '.join(settings.queues)}" if settings.queues else ""
        health = f", health at {url}" if url else ""
        told = f"working on the jobs of {settings.app}{queues}{health}; Ctrl-C stops it"
        print(told, file=sys.stderr)

    work(settings, announce, found)
    return 0
