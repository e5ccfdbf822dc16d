"""Generates the pages of the reference: commands, settings, errors, limits, HTTP and Python API.

`make docs` runs it before it builds the site.

    python -m scripts.reference docs/reference
"""

import argparse
import ast
import dataclasses
import importlib
import inspect
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from onceward import errors as error_table
from onceward import limits as limit_table
from onceward.capabilities import CAPABILITIES
from onceward.cli import make_parser
from onceward.parts import attributes
from onceward.parts import load as load_parts
from onceward.web.api import ROUTES
from onceward.web.openapi import document
from onceward.web.routes import Routes
from onceward.web.settings import MEANING, PREFIX, SECRET, SWITCHES, Settings
from scripts.generate_python import FOLDER, class_name, operations_by_noun

# The public modules first, then the modules of objects that applications get from them.
MODULES = {
    "onceward": "The application, the rules of games, and the errors.",
    "onceward.keys": "Keys of records.",
    "onceward.client": "The client, over HTTP and WebSocket.",
    "onceward.tokens": "Tokens for the users of your application.",
    "onceward.web": "The server, and routes and pages of your application.",
    "onceward.testing": "The testing kit.",
    "onceward.work.queues": "`app.queues`: queues, for operators.",
    "onceward.locks.server": "`app.locks`: locks and semaphores.",
    "onceward.webhooks.timers.server": "`app.timers`: jobs and webhook calls at a time.",
    "onceward.rooms.part": "`app.rooms`: rooms, each call in a transaction.",
    "onceward.rooms.records": "Settings of rooms.",
    "onceward.api.rooms": "Contents of rooms.",
    "onceward.tables.server": "`app.tables`: tables, each call a separate transaction.",
    "onceward.tables": "`app.seats`: the same, in your transaction.",
    "onceward.tables.games.server": "`app.games`: matches, each call in a transaction.",
    "onceward.api.matches": "Matches as a player sees them.",
    "onceward.store.transaction": "What `tx.scan` returns.",
    "onceward.testing.simulation": "The simulator.",
}
# Parts whose module docstring is a sufficient description.
MODULES |= {
    one.type.__module__: f"`app.{one.name}`: "
    + (inspect.getdoc(sys.modules[one.type.__module__]) or "").partition("\n")[0]
    for one in attributes()
    if one.type.__module__ not in MODULES
}
# The documented names of modules that also contain internals.
ONLY = {
    "onceward.work.queues": ("Queues",),
    "onceward.locks.server": ("Locks",),
    "onceward.webhooks.timers.server": ("Timers",),
    "onceward.rooms.part": ("Rooms",),
    "onceward.rooms.records": ("Info",),
    "onceward.api.rooms": ("Item", "RoomEntry"),
    "onceward.tables.server": ("Tables",),
    "onceward.tables": ("Seats", "Policy", "Table", "Seat", "Place", "Ending", "Referee"),
    "onceward.tables.games.server": ("Games",),
    "onceward.api.matches": ("MatchView",),
    "onceward.store.transaction": ("Row",),
}
for _noun in operations_by_noun():
    _module = f"onceward.client.{_noun}"
    _class = _noun.capitalize()
    if not (FOLDER.parent / f"{_noun}.py").exists():
        _module, _class = f"onceward.client.operations.{_noun}", class_name(_noun)
    MODULES[_module] = f"`client.{_noun}`."
    ONLY[_module] = (_class,)
_MADE = "*Generated from the code by `make docs`.*\n"

_INTRO_CAPABILITIES = (
    "Each capability is a folder of the package. It can add scopes for API keys and tokens, kinds "
    "of records, and kinds of entries in the schedule. Words in braces are placeholders for names "
    "and numbers; `xx` spreads load over partitions."
)


def table(*rows: tuple[str, ...]) -> str:
    """A Markdown table; the first row is the header."""
    lines = [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines) + "\n"


def commands() -> str:
    """All commands with their arguments."""
    os.environ["COLUMNS"] = "100"
    whole = make_parser().complete_all()
    parts = ["# Commands\n", _MADE, f"{whole.epilog}\n"]
    for names, parser in _commands(whole, ("onceward",)):
        parts.append(f"{'#' * len(names)} {' '.join(names)}\n")
        parts.append(f"{parser.description or ''}\n")
        usage = textwrap.dedent(parser.format_usage().removeprefix("usage: "))
        parts.append(f"```text\n{usage}```\n")
        rows = [
            (_argument(action), action.help or "")
            for action in parser._actions
            if not isinstance(action, argparse._SubParsersAction | argparse._HelpAction)
        ]
        if rows:
            parts.append(table(("argument", ""), *rows))
        if parser.epilog:
            parts.append(f"`{parser.epilog.removeprefix('example: ')}`\n")
    return "\n".join(parts)


def _commands(
    parser: argparse.ArgumentParser, names: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield (*names, name), inner
                yield from _commands(inner, (*names, name))


def _argument(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    return ", ".join(f"`{option}{value}`" for option in action.option_strings)


def settings() -> str:
    """All settings of the server, and where they can be set."""
    rows = []
    for field in msgspec.structs.fields(Settings):
        flag = f"--{field.name.replace('_', '-')}"
        flags = f"`{flag}`, `--no-{flag[2:]}`" if field.name in SWITCHES else f"`{flag}`"
        where = f"`{PREFIX}{field.name.upper()}`"
        where = f"{where} as JSON" if field.name in SECRET else f"{flags}, {where}"
        default = "none" if field.default in ("", ()) else f"`{_plain(field.default)}`"
        rows.append((f"`{field.name}`", where, default, MEANING[field.name]))
    intro = (
        "Set them in `onceward.toml` or the file of `--config`, in the environment, or as flags; "
        "later sources override earlier ones. `onceward config` shows the effective values and "
        "their sources. [The server](../server.md#settings) has an example.\n"
    )
    return "\n".join(
        ["# Settings\n", _MADE, intro, table(("setting", "where", "default", ""), *rows)]
    )


def _plain(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def errors() -> str:
    """All error codes with their meaning for each kind of caller."""
    classes: dict[str, str] = {}
    for name, one in vars(error_table).items():
        if inspect.isclass(one) and issubclass(one, error_table.OncewardError):
            classes.setdefault(one.default_code, name)
    rows = [
        (
            f"`{code}`",
            kind.title,
            str(kind.status),
            str(kind.close),
            str(kind.exit),
            "yes" if kind.retry else "no",
            f"`{classes[code]}`" if code in classes else "",
        )
        for code, kind in error_table.TABLE.items()
    ]
    intro = (
        "A code never changes its meaning; texts may. Over HTTP it is the `code` of a problem "
        "document (RFC 9457), on a WebSocket the reason of a close or the `code` of a frame, in "
        "Python `error.code`, and for commands the word in brackets and the exit code. *Again* "
        "shows whether the same call may succeed later. Applications add their own codes with "
        "`onceward.register_error`.\n"
    )
    heads = ("code", "", "HTTP", "close", "exit", "again", "class")
    return "\n".join(["# Errors\n", _MADE, intro, table(heads, *rows)])


def capabilities() -> str:
    """Scopes, kinds of records and kinds of due entries of every capability."""
    text = ["# Capabilities\n", _MADE, f"{_INTRO_CAPABILITIES}\n"]
    for folder, scopes in CAPABILITIES:
        part = load_parts()[folder]
        text.append(f"## {folder}\n")
        if scopes:
            rows = [(f"`{one.action}`", one.allows) for one in scopes]
            text.append(table(("scope", "allows to"), *rows))
        kinds = [(f"`{one.partition}`", f"`{one.sort}`", one.holds) for one in part.kinds]
        text.append(table(("partition", "sort key", "record"), *kinds))
        if part.due:
            names = ", ".join(f"`{one.kind}`" for one in part.due)
            text.append(f"Due entries: {names}.\n")
    return "\n".join(text)


def limits() -> str:
    """All limits by part and group."""
    parts = ["# Limits\n", _MADE, f"{inspect.getdoc(limit_table)}\n"]
    for name, part in vars(limit_table).items():
        if isinstance(part, ModuleType):
            parts += [f"## {name.capitalize()}\n", f"{inspect.getdoc(part)}\n", *_groups(part)]
    return "\n".join(parts)


def _groups(part: ModuleType) -> Iterator[str]:
    """The limits of a part by group."""
    said: list[str] = []
    rows: list[tuple[str, ...]] = []
    for line in [*inspect.getsource(part).splitlines(), "# "]:
        name = line.partition(" = ")[0]
        if line.startswith("# "):
            if rows:
                yield f"{' '.join(said)}\n\n{table(('limit', 'is', ''), *rows)}"
                rows, said = [], []
            said.append(line.removeprefix("# "))
        elif name.isupper() and hasattr(part, name):
            comment = line.partition("  # ")[2]
            rows.append((f"`{name}`", _number(getattr(part, name)), comment))


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and value > 9_999 else str(value)


def http() -> str:
    """All operations of the HTTP API."""
    whole = json.loads(document(Routes(ROUTES)))
    schemas = whole["components"]["schemas"]
    parts = ["# HTTP\n", _MADE]
    parts.append(
        "A server has this page at `/docs`, and as an OpenAPI document at `/openapi.json`. Bodies "
        "are JSON; [errors](errors.md) are problem documents. See [the server](../server.md).\n"
    )
    for path, methods in whole["paths"].items():
        for method, operation in methods.items():
            head = f"{operation['summary']}. {operation['description']}"
            parts.append(f"## {method.upper()} {path}\n\n{head}\n")
            found = [
                (f"`{one['name']}`", one["in"], _type(one["schema"]), one["description"])
                for one in operation.get("parameters", ())
            ]
            if found:
                parts.append(table(("parameter", "in", "type", "description"), *found))
            if "requestBody" in operation:
                content = operation["requestBody"]["content"]
                takes = "body, JSON or a form" if len(content) > 1 else "body"
                parts.append(_members(takes, _schema(content, schemas)))
            for status, answer in operation["responses"].items():
                if int(status) < 300 and "content" in answer:
                    parts.append(_members(status, _schema(answer["content"], schemas)))
            shared = whole["components"]["responses"]
            problems = [
                f"{status}: `{'`, `'.join(_resolved(answer, shared)['x-codes'])}`"
                for status, answer in operation["responses"].items()
                if int(status) >= 400
            ]
            parts.append("Problems: " + "; ".join(problems) + "\n")
    return "\n".join(parts)


def _schema(content: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    kind, *_ = content.values()  # all have the same schema
    found: dict[str, Any] = kind["schema"]
    return _resolved(found, schemas)


def _resolved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return schemas[name] if name else schema


def _members(title: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (
            f"`{name}`",
            f"{_type(one)}, required" if name in required else _type(one),
            one.get("description", ""),
        )
        for name, one in schema.get("properties", {}).items()
    ]
    heads = (title, "type", "description")
    return table(heads, *rows) if rows else f"{title}: {_type(schema)}\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items') or {})}"
    bounds = [f"{word} {schema[name]}" for name, word in _BOUNDS.items() if name in schema]
    return ", ".join([str(schema.get("type", "anything")), *bounds])


_BOUNDS = {
    "minimum": "from",
    "maximum": "to",
    "exclusiveMinimum": "above",
    "minLength": "of at least",
    "maxLength": "of at most",
}


def python() -> str:
    """All public names with their docstrings."""
    parts = ["# Python\n", _MADE]
    for module_name, words in MODULES.items():
        module = importlib.import_module(module_name)
        parts.append(f"## {module_name}\n\n{words}\n")
        for name in public(module):
            parts.append(_documented(name, getattr(module, name)))
    return "\n".join(parts)


def public(module: ModuleType) -> list[str]:
    """The public names of a module."""
    if module.__name__ in ONLY:
        return list(ONLY[module.__name__])
    if hasattr(module, "__all__"):
        # Modules have separate sections, and constants have no docstrings.
        return [name for name in module.__all__ if callable(getattr(module, name))]
    return [
        name
        for name, one in vars(module).items()
        if not name.startswith("_") and getattr(one, "__module__", "") == module.__name__
    ]


def _documented(name: str, one: Any) -> str:
    if not inspect.isclass(one):
        return f"### {name}\n\n{_code(name, one)}{_doc(one)}"
    parts = [f"### {name}\n\n{_code(name, one)}{_doc(one)}"]
    fields = _fields(one)
    if fields:
        rows = [(f"`{field}`", f"`{kind}`", words) for field, (kind, words) in fields.items()]
        parts.append(table(("", "", ""), *rows))
    for method, function in methods(one).items():
        parts.append(f"#### {name}.{method}\n\n{_code(method, function)}{_doc(function)}")
    return "\n".join(parts)


def methods(one: type) -> dict[str, Any]:
    """The public methods of a class, including those of base classes in the package."""
    found: dict[str, Any] = {}
    for base in reversed(one.__mro__):
        if base.__module__.startswith("onceward"):
            for name, member in vars(base).items():
                inner = member.fget if isinstance(member, property) else member
                inner = getattr(inner, "__func__", inner)
                if not name.startswith("_") and inspect.isfunction(inner):
                    found[name] = inner
    return found


def _code(name: str, one: Any) -> str:
    """The signature as code."""
    try:
        signature = str(inspect.signature(one)).replace("onceward.", "")
    except (TypeError, ValueError):
        return ""
    if inspect.isclass(one) and issubclass(one, Exception):
        signature = signature.replace("*args, **kwargs", "message")
    words = "async " if inspect.iscoroutinefunction(one) else ""
    wrapped = textwrap.wrap(f"{words}{name}{signature}", 96, subsequent_indent="    ")
    return "```text\n" + "\n".join(wrapped) + "\n```\n\n"


def _doc(one: Any) -> str:
    """The docstring; indented parts are code."""
    words = inspect.getdoc(one) or ""
    own = getattr(one, "__doc__", None)
    if inspect.isclass(one) and (not own or own.startswith(f"{one.__name__}(")):
        words = ""  # generated by a dataclass
    init = vars(one).get("__init__") if inspect.isclass(one) else None
    if init is not None and init.__doc__ and "See help(type(self))" not in init.__doc__:
        words += f"\n\n{inspect.getdoc(init)}"
    return f"{words.strip()}\n"


def _fields(one: type) -> dict[str, tuple[str, str]]:
    """The fields of a struct or dataclass, with type and description."""
    if not (dataclasses.is_dataclass(one) or issubclass(one, msgspec.Struct)):
        return {}
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
    except (OSError, TypeError):
        return {}
    assert isinstance(body, ast.ClassDef)
    found: dict[str, tuple[str, str]] = {}
    for number, node in enumerate(body.body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            behind = body.body[number + 1] if number + 1 < len(body.body) else None
            said = isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant)
            words = str(behind.value.value) if said else ""  # type: ignore[union-attr]
            if not node.target.id.startswith("_"):
                kind = ast.unparse(node.annotation).replace("|", "or")
                found[node.target.id] = (kind, " ".join(words.split()))
    return found


PAGES: dict[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "errors": errors,
    "limits": limits,
    "capabilities": capabilities,
    "http": http,
    "python": python,
}


def main() -> None:
    [folder] = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        (folder / f"{name}.md").write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
