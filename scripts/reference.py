"""Generates the pages of the reference: commands, settings, errors, limits, HTTP and Python API.

`make docs` runs it before it builds the site.

    python -m scripts.reference docs/reference
"""

import argparse
import inspect
import json
import os
import shutil
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
from onceward.metric_table import METRICS, full_name
from onceward.parts import load as load_parts
from onceward.web.api import ROUTES
from onceward.web.openapi import document
from onceward.web.routes import Routes
from onceward.web.settings import MEANING, PREFIX, SECRET, SWITCHES, Settings, option_of
from scripts import reference_python
from scripts.reference_python import table

_MADE = "*Generated from the code by `make docs`.*\n"

_INTRO_CAPABILITIES = (
    "Each capability is a folder of the package. It can add scopes for API keys and tokens, kinds "
    "of records, and kinds of entries in the schedule. Words in braces are placeholders for names "
    "and numbers; `xx` spreads load over partitions."
)

_INTRO_METRICS = (
    "`/metrics` has these metrics in the text format of Prometheus, with those of your application "
    "([Monitoring](../guides/monitoring.md)). Counters and histograms with known labels exist from "
    f"the start. The first {limit_table.METERED_QUEUES_MAX} queues of a node have their own "
    "series; all further ones share the label `other`.\n"
)


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
        flag = option_of(field.name)
        flags = f"`{flag}`, `--no-{flag[2:]}`" if field.name in SWITCHES else f"`{flag}`"
        where = f"`{PREFIX}{field.name.upper()}`"
        where = f"{where} as JSON" if field.name in SECRET else f"{flags}, {where}"
        default = "none" if field.default in ("", (), None) else f"`{_plain(field.default)}`"
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


def metrics() -> str:
    """All metrics of a node."""
    rows = [
        (
            f"`{full_name(name, one.kind)}`",
            one.kind,
            ", ".join(f"`{label}`" for label in one.labels),
            one.help,
        )
        for name, one in METRICS.items()
    ]
    return "\n".join(
        ["# Metrics\n", _MADE, _INTRO_METRICS, table(("metric", "kind", "labels", ""), *rows)]
    )


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
        if isinstance(part, ModuleType) and part.__name__.startswith(limit_table.__name__):
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


PAGES: dict[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "errors": errors,
    "limits": limits,
    "metrics": metrics,
    "capabilities": capabilities,
    "http": http,
}


def pages() -> dict[str, str]:
    """The text of each page by name."""
    return {name: make() for name, make in PAGES.items()} | reference_python.pages()


def main() -> None:
    [folder] = map(Path, sys.argv[1:])
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "python").mkdir(parents=True)
    for name, text in pages().items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
