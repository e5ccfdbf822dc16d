"""Commands that start a server or workers, and create their configuration."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from onceward import ids, tokens
from onceward.cli.complaints import complain
from onceward.cli.display import console
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
)

# 256 random bits.
_KEY_BYTES = 32
# Signs tokens.
_KEY_VARIABLE = f"{PREFIX}TOKEN_KEY"


def add_commands(commands: Any) -> None:
    """Add them to the parser."""
    serve = commands.add_parser(
        "serve",
        help="run the server",
        description="Run the server: the HTTP API, and the handlers of an application if one is "
        "named. On this machine's own address it needs no keys (dev mode). SIGTERM and Ctrl-C "
        "stop it: what is at hand is answered first.",
        epilog="example: onceward serve --database sqlite:///app.db --port 8080",
    )
    _takes_settings(serve)
    serve.set_defaults(run=_serve)

    config = commands.add_parser(
        "config",
        help="list the server's settings",
        description=f"List all settings, their values, and where each comes from: a file "
        f"({FILE}, or --config), the environment ({PREFIX}…) and the command line, of which the "
        "last counts.",
    )
    _takes_settings(config)
    config.add_argument("--json", action="store_true", help="write JSON, for programs")
    config.set_defaults(run=_config)

    token = commands.add_parser(
        "token",
        help="create an API key, or sign a token",
        description="Create an API key for a program (--scope). It is shown once; the server's "
        "settings get its digest. Or sign a JSON Web Token for a user (--grant), with the secret "
        f"or private key in --key-file or the environment variable {_KEY_VARIABLE}.",
        epilog="example: onceward token billing --scope 'send:invoices.*' --scope lock:billing",
    )
    token.add_argument("name", metavar="NAME", help="name of the program or user")
    token.add_argument(
        "--scope",
        action="append",
        default=[],
        metavar="ACTION:PATTERN",
        help="scope of the API key: send:orders.*, or all; repeatable",
    )
    token.add_argument(
        "--grant",
        action="append",
        default=[],
        metavar="ACTION:NAME",
        help="grant of the token, name taken literally; repeatable",
    )
    token.add_argument("--key-file", metavar="FILE", help="secret or private key; - for stdin")
    token.add_argument(
        "--algorithm", default="HS256", choices=tokens.ALGORITHMS, help="of the token [HS256]"
    )
    token.add_argument("--audience", default="onceward", help="audience of the token [onceward]")
    token.add_argument("--issuer", help="issuer of the token")
    token.add_argument("--key-id", help="key ID of the token")
    token.add_argument(
        "--expires-s", type=int, default=3_600, help="lifetime of the token in seconds [3600]"
    )
    token.set_defaults(run=_token)

    work = commands.add_parser(
        "work",
        help="run the handlers of an application",
        description="Run the handlers of an application until SIGTERM or Ctrl-C, without an HTTP "
        "server. On PostgreSQL any number of such processes share the work.",
        epilog="example: onceward work shop:app",
    )
    work.add_argument("app", metavar="MODULE:NAME", help="where the App is")
    work.set_defaults(run=_work)


def _takes_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", help=f"the file of settings ({FILE}, if it is there)")
    for name in Settings.__struct_fields__:
        if name not in SECRET:
            option = f"--{name.replace('_', '-')}"
            if name in SWITCHES:
                command.add_argument(
                    option, action=argparse.BooleanOptionalAction, help=MEANING[name]
                )
            else:
                command.add_argument(option, help=MEANING[name])


def _flags(arguments: argparse.Namespace) -> dict[str, Any]:
    names = [name for name in Settings.__struct_fields__ if name not in SECRET]
    return {name: getattr(arguments, name) for name in names}


def _serve(arguments: argparse.Namespace) -> int:
    settings, found = load(_flags(arguments), file=arguments.config)
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
    """Who may call, in a few words."""
    kinds = (("API key", len(settings.keys)), ("token issuer", len(settings.jwt)))
    return ", ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in kinds if count)


def _config(arguments: argparse.Namespace) -> int:
    _, found = load(_flags(arguments), file=arguments.config)
    for warning in exposed(found):
        complain(f"warning: {warning}")
    if arguments.json:
        shown = [{"name": s.name, "value": s.plain, "source": s.source} for s in found]
        print(msgspec.json.format(msgspec.json.encode(shown)).decode())
        return 0
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2))
    for column in ("setting", "value", "from", "meaning"):
        table.add_column(column, overflow="fold")
    for setting in found:
        table.add_row(setting.name, Text(setting.shown), Text(setting.source), setting.meaning)
    console().print(table)
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
    print(f"That is the key; it is shown this once. For {FILE}:\n")
    print(f'[[keys]]\nname = {_quoted(name)}\ndigest = "{digest_of(key)}"\nscopes = [{listed}]')
    return 0


def _quoted(text: str) -> str:
    """A text in TOML, as which it comes back whatever is in it."""
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
        raise OncewardError(f"key file {file!r} not found", code="no_such_file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise OncewardError(f"cannot read {file!r}: {error}", code="bad_settings") from error
    return text.rstrip("\r\n")


def _work(arguments: argparse.Namespace) -> int:
    from onceward.web import logs
    from onceward.web.application import load_app

    sys.path.insert(0, "")
    app = load_app(arguments.app)
    logs.set_up("text", "info")

    def announce() -> None:
        print(f"working on the jobs of {arguments.app}; Ctrl-C stops it", file=sys.stderr)

    app.work(announce)
    return 0
