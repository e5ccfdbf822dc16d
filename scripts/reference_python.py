"""Generates the pages of the Python reference: one for each public module.

A page has the signatures as they are written, parameters with descriptions, and links.
"""

import ast
import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import msgspec

from onceward.api.arguments import members
from onceward.api.field_docs import field_docs
from onceward.api.queues import QueueSettings
from onceward.job_options import JobOptions
from onceward.parts import attributes
from scripts.generate_python import FOLDER, class_name, operations_by_noun

WIDTH = 88

# Keyword arguments with the descriptions of the struct that has them.
_OPTIONS = ("JobKeywords", "MergeKeywords", "SendKeywords", "QueueKeywords")
_OPTION_DOCS = {
    one.name: one.doc for struct in (JobOptions, QueueSettings) for one in members(struct)
}

# The public modules, in the order of the pages.
PUBLIC = {
    "onceward": "The application, its handlers and transactions, the rules of games, and errors.",
    "onceward.client": "The Python client: jobs, locks, timers, rooms and tables over HTTP and "
    "WebSocket.",
    "onceward.sync": "Applications and clients for synchronous code.",
    "onceward.web": "The HTTP and WebSocket server, and routes and pages of your application.",
    "onceward.testing": "Test tools: virtual time, the simulator, fault injection.",
    "onceward.sql": "Jobs and effects in transactions of your SQL database.",
    "onceward.integrations.fastapi": "Onceward in an application of FastAPI.",
    "onceward.integrations.starlette": "Onceward in an application of Starlette.",
    "onceward.tokens": "Tokens (JWT) for the users of your application.",
    "onceward.keys": "Keys of records.",
}
# Objects that applications get from others: page, title of each section, module, and names in it.
OBJECTS: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {
    "app": [
        ("app.queues: queues, for operators", "onceward.work.queues", ("Queues",)),
        ("app.locks: locks and semaphores", "onceward.locks.server", ("Locks",)),
        ("Locks that are held", "onceward.locks.held", ("Hold", "Lock")),
        (
            "app.timers: jobs and webhook calls",
            "onceward.webhooks.timers.server",
            ("Timers",),
        ),
        ("app.rooms: rooms in your transaction", "onceward.rooms.part", ("Rooms",)),
        ("Settings of rooms", "onceward.rooms.records", ("Info",)),
        ("Contents of rooms", "onceward.api.rooms", ("Item", "RoomEntry")),
        (
            "app.tables: tables, a transaction each",
            "onceward.tables.server",
            ("Tables",),
        ),
        (
            "app.seats: tables in your transaction",
            "onceward.tables",
            ("Seats", "Policy", "Table", "Seat", "Place", "Ending", "Referee"),
        ),
        (
            "app.games: matches, a transaction each",
            "onceward.tables.games.server",
            ("Games",),
        ),
        ("Matches as a player sees them", "onceward.api.matches", ("MatchView",)),
        ("Results of tx.scan", "onceward.store.transaction", ("Row",)),
    ],
    "namespaces": [],
}
_known = {module for _, module, _ in OBJECTS["app"]}
for _one in attributes():
    _module = _one.type.__module__
    if _module not in _known:
        _doc_line = (inspect.getdoc(sys.modules[_module]) or "").partition("\n")[0].rstrip(".")
        _names = tuple(
            name
            for name, one in vars(sys.modules[_module]).items()
            if not name.startswith("_") and getattr(one, "__module__", "") == _module
        )
        OBJECTS["app"].append((f"app.{_one.name}: {_doc_line}", _module, _names))
for _noun in operations_by_noun():
    _module, _class = f"onceward.client.{_noun}", _noun.capitalize()
    if not (FOLDER.parent / f"{_noun}.py").exists():
        _module, _class = f"onceward.client.operations.{_noun}", class_name(_noun)
    OBJECTS["namespaces"].append((f"client.{_noun}", _module, (_class,)))

_TITLES = {
    "app": "Attributes of App",
    "namespaces": "Namespaces of Client",
}
_INTROS = {
    "app": "An application has an attribute for each capability, such as `app.locks`.",
    "namespaces": "A client has a namespace for each kind of object, such as `client.jobs`. Each "
    "operation of the [HTTP API](../http.md) is a method.",
}
# Made by other objects, so applications do not call their constructors.
_INTERNAL = re.compile(
    r"\b(Store|Transport|Schedule|Transaction|LockTable|Claim|Terms|Replica|Matches|\w+Operations)\b"
)
# Methods with such parameters are called by the package only.
_INSIDE = re.compile(r"\b(Terms|Hold|Store|Claim|Transport|Coroutine)\b")
_GIVEN = {"Saved", "Process", "Rooms", "Seats"}
_FIRST = ("App", "Job", "Transaction", "Client", "Worker", "Server", "run_virtual", "simulate")
_MADE = "*Generated from the code by `make docs`.*\n"


def pages() -> dict[str, str]:
    """The text of each page by name."""
    found = {"python/index": _overview()}
    for name in PUBLIC:
        module = importlib.import_module(name)
        words = inspect.getdoc(module) or ""
        body = [_documented(f"python/{name}", one, getattr(module, one)) for one in public(module)]
        found[f"python/{name}"] = _page(name, f"{PUBLIC[name]}\n\n{_prose(words)}", body)
    for name, objects in OBJECTS.items():
        body = []
        for title, module_name, names in objects:
            module = importlib.import_module(module_name)
            path = _path(title)
            if not path:
                body.append(f"## {title}\n")
            for one in names:
                shown = path if one == names[0] else ""
                member = getattr(module, one)
                body.append(_documented(f"python/{name}", one, member, shown, title))
        found[f"python/{name}"] = _page(_TITLES[name], f"{_INTROS[name]}\n", body)
    return found


def _page(title: str, intro: str, body: list[str]) -> str:
    return "\n".join([f"# {title}\n", _MADE, intro, *body])


def _overview() -> str:
    rows = [f"| [`{name}`]({name}.md) | {words} |" for name, words in PUBLIC.items()]
    rows += [f"| [{_TITLES[name]}]({name}.md) | {_INTROS[name]} |" for name in OBJECTS]
    head = ["| module | contents |", "|---|---|"]
    intro = (
        "Applications import from these modules only. Other modules can change in any version.\n"
    )
    return "\n".join(["# Python\n", _MADE, intro, *head, *rows, ""])


def public(module: ModuleType) -> list[str]:
    """The public names of a module, errors last. Submodules have separate pages, and constants
    have no docstrings."""
    names = [name for name in module.__all__ if callable(getattr(module, name))]
    return sorted(names, key=lambda name: (_is_error(getattr(module, name)), name not in _FIRST))


def _is_error(one: Any) -> bool:
    return inspect.isclass(one) and issubclass(one, Exception)


@cache
def anchors() -> dict[str, list[tuple[str, str]]]:
    """The places (page, anchor) where a name such as `App` or `App.handler` is documented."""
    found: dict[str, list[tuple[str, str]]] = {}
    for page, module_name, names in sections():
        module = importlib.import_module(module_name)
        for name in names:
            found.setdefault(name, []).append((page, name.lower()))
            if inspect.isclass(getattr(module, name)):
                for method in methods(getattr(module, name)):
                    whole = f"{name}.{method}"
                    found.setdefault(whole, []).append((page, whole.lower()))
    for page, objects in OBJECTS.items():
        for title, _, names in objects:
            if path := _path(title):
                found[path] = [(f"python/{page}", names[0].lower())]
    return found


def sections() -> Iterator[tuple[str, str, list[str]]]:
    """The documented names: (page, module, names)."""
    for name in PUBLIC:
        yield f"python/{name}", name, public(importlib.import_module(name))
    for page, objects in OBJECTS.items():
        for _, module, names in objects:
            yield f"python/{page}", module, list(names)


def _target(page: str, name: str) -> str | None:
    """The link from a page to a name: on the same page if it is there, else if it is clear."""
    places = anchors().get(name, [])
    here = [anchor for other, anchor in places if other == page]
    if here:
        return f"#{here[0]}"
    if len({other for other, _ in places}) == 1:
        other, anchor = places[0]
        return f"{other.removeprefix('python/')}.md#{anchor}"
    return None


def _path(title: str) -> str:
    """The path in a title such as `app.locks: locks and semaphores`, or nothing."""
    path = title.partition(":")[0]
    return path if " " not in path else ""


def _documented(page: str, name: str, one: Any, path: str = "", title: str = "") -> str:
    """The section of a name. Methods of an object with a path, such as `app.locks`, have it too."""
    if not inspect.isclass(one):
        return f"## {name} {{#{name.lower()}}}\n\n{_function(page, name, one)}"
    parts = [f"## {title if path else name} {{#{name.lower()}}}\n"]
    parts += [] if path else [_class_block(name, one)]
    parts += [_prose(_class_doc(one), page), _constructor(page, name, one)]
    fields = _fields(one)
    if fields:
        rows = [
            (f"`{field}`", _typed(page, kind), _inline(words, page))
            for field, (kind, words) in fields.items()
        ]
        parts.append(table(("attribute", "type", "description"), *rows))
    for method, function in methods(one).items():
        whole = f"{name}.{method}"
        head = f"### {path or name}.{method} {{#{whole.lower()}}}\n"
        parts.append(f"{head}\n{_function(page, method, function, vars_of(one, method))}")
    return "\n".join(part for part in parts if part)


def _class_block(name: str, one: type) -> str:
    bases = [base.__name__ for base in one.__bases__ if base not in (object, msgspec.Struct)]
    bases = [base for base in bases if base not in ("Generic", "Operations")]
    inherits = f"({', '.join(bases)})" if bases else ""
    return f"```python\nclass {name}{inherits}\n```\n"


def _class_doc(one: type) -> str:
    own = one.__doc__ or ""
    return "" if own.startswith(f"{one.__name__}(") else inspect.cleandoc(own)  # of a dataclass


def _constructor(page: str, name: str, one: type) -> str:
    init = vars(one).get("__init__")
    if not inspect.isfunction(init) or dataclasses.is_dataclass(one) or _is_error(one):
        return ""
    if init.__module__ != one.__module__ or name in _GIVEN:  # made by `Protocol`
        return ""
    node = _node(init)
    if node is None or _INTERNAL.search(_required(node)):
        return ""
    text = inspect.getdoc(init) or ""
    return f"{_signature(name, node)}{_parameters(page, node, text)}"


def _required(node: ast.FunctionDef | ast.AsyncFunctionDef | None) -> str:
    """The types of the parameters without a default."""
    if node is None:
        return ""
    places = node.args.posonlyargs + node.args.args
    found = places[: len(places) - len(node.args.defaults)]
    found += [
        arg
        for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        if default is None
    ]
    return " ".join(ast.unparse(arg.annotation) for arg in found if arg.annotation)


def vars_of(one: type, method: str) -> Any:
    """A member of a class as it is declared, with its decorators."""
    return next(vars(base)[method] for base in one.__mro__ if method in vars(base))


def methods(one: type) -> dict[str, Any]:
    """The public methods of a class, including those of base classes in the package."""
    found: dict[str, Any] = {}
    for base in reversed(one.__mro__):
        if base.__module__.startswith("onceward"):
            for name, member in vars(base).items():
                inner = member.fget if isinstance(member, property) else member
                inner = getattr(inner, "__func__", inner)
                inner = inspect.unwrap(inner) if callable(inner) else inner
                if name.startswith("_") or not inspect.isfunction(inner):
                    continue
                if not _INSIDE.search(_required(_node(inner))):
                    found[name] = inner
    return found


def _function(page: str, name: str, one: Any, declared: Any = None) -> str:
    text = inspect.getdoc(one) or ""
    node = _node(one)
    if node is None:
        return _prose(text, page)
    if isinstance(declared, property):
        kind = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return f"```python\nproperty {name}{kind}\n```\n\n{_prose(text, page)}"
    overloads = [found for other in typing.get_overloads(one) if (found := _node(other))]
    signatures = "".join(_signature(name, other) for other in overloads or [node])
    return f"{signatures}{_parameters(page, node, text)}"


def _node(one: Any) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(one))))
    except (OSError, TypeError, SyntaxError):
        return None
    [node] = tree.body
    return node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None


def _signature(name: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The signature with annotations and defaults as they are written."""
    words = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and name[0].islower() else ""
    given = _given(node.args)
    given = given[1:] if given and given[0] in ("self", "cls") else given
    line = f"{words}{name}({', '.join(given)}){returns}"
    if len(line) > WIDTH:
        lines = "".join(f"    {one},\n" for one in given)
        line = f"{words}{name}(\n{lines}){returns}"
    return f"```python\n{line}\n```\n\n"


def _given(arguments: ast.arguments) -> list[str]:
    """The parameters of a signature, each as text."""
    places = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(places) - len(arguments.defaults)) + arguments.defaults
    found = [_argument(*one) for one in zip(places, defaults, strict=True)]
    if arguments.posonlyargs:
        found.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg or arguments.kwonlyargs:
        found.append(f"*{_argument(arguments.vararg) if arguments.vararg else ''}")
    found += map(_argument, arguments.kwonlyargs, arguments.kw_defaults)
    return [*found, f"**{_argument(arguments.kwarg)}"] if arguments.kwarg else found


def _argument(argument: ast.arg, default: ast.expr | None = None) -> str:
    kind = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    if default is None:
        return f"{argument.arg}{kind}"
    equals = " = " if kind else "="
    return f"{argument.arg}{kind}{equals}{ast.unparse(default)}".replace("'", '"')


def _parameters(page: str, node: ast.FunctionDef | ast.AsyncFunctionDef, text: str) -> str:
    """The docstring, with its arguments as a table."""
    before, described, after = _arguments(text)
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [one for one in (arguments.vararg, arguments.kwarg) if one]
    rows = []
    for one in every:
        kind = ast.unparse(one.annotation) if one.annotation else ""
        words = described.get(one.arg, "")
        linked = _typed(page, kind)
        if unpacked := re.fullmatch(r"Unpack\[(\w+)\]", kind):
            rows += [
                (f"`{name}`", _typed(page, type_), _inline(described.get(name, doc), page))
                for name, type_, doc in _keywords(unpacked[1])
            ]
        elif one.arg not in ("self", "cls") and (words or "](" in linked):
            rows.append((f"`{one.arg}`", linked, _inline(words, page)))
    made = table(("parameter", "type", "description"), *rows) if rows else ""
    if node.returns and "](" in (linked := _typed(page, ast.unparse(node.returns))):
        made += f"\nReturns {linked}.\n"
    return f"{_prose(before, page)}\n{made}\n{_prose(after, page)}"


def _keywords(name: str) -> Iterator[tuple[str, str, str]]:
    """Keyword arguments that are declared as a TypedDict: names, types and descriptions."""
    for module in list(sys.modules.values()):
        found: Any = getattr(module, name, None)
        if module.__name__.startswith("onceward") and typing.is_typeddict(found):
            break
    docs = {**_OPTION_DOCS, **field_docs(found)} if name in _OPTIONS else field_docs(found)
    for key, type_ in typing.get_type_hints(found).items():
        yield key, _written(type_), docs.get(key, "")


def _written(type_: Any) -> str:
    """A type as it is written in code."""
    text = type_.__name__ if isinstance(type_, type) and not typing.get_args(type_) else str(type_)
    text = re.sub(r"(?:\w+\.)+(\w+)", r"\1", text).replace("NoneType", "None")
    return re.sub(r"Optional\[(.*)\]", r"\1 | None", text)


def _arguments(text: str) -> tuple[str, dict[str, str], str]:
    """A docstring as the text before the arguments, their descriptions, and the text behind."""
    before, head, rest = text.partition("Args:\n")
    if not head or (before and not before.endswith("\n")):
        return text, {}, ""
    found: dict[str, str] = {}
    names: list[str] = []
    lines = rest.splitlines()
    for number, line in enumerate(lines):
        if line and not line.startswith(" "):
            return before, found, "\n".join(lines[number:])
        if match := re.match(r" {4}\**(\w+(?:, \w+)*)(?: \([^)]*\))?: (.*)", line):
            names = match[1].split(", ")
            found |= dict.fromkeys(names, match[2])
        elif names and line.strip():
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return before, found, ""


def _typed(page: str, kind: str) -> str:
    """A type as code, with links to the names that are documented."""

    def link(match: re.Match[str]) -> str:
        target = _target(page, match[0].rpartition(".")[2])
        return f"[{match[0]}]({target})" if target and match[0][-1] != "." else match[0]

    if not kind:
        return ""
    kind = kind.strip("'\"")
    escaped = re.sub(r"([\[\]*_])", r"\\\1", kind)
    escaped = re.sub(r"(?<![\w\\.])(?:\w+\.)*[A-Z]\w*", link, escaped)
    return f"<code>{escaped}</code>"


def _prose(text: str, page: str = "") -> str:
    """A docstring as Markdown: indented parts are code, and public names are links."""
    lines = text.strip().splitlines()
    for number, line in enumerate(lines):
        if not line.startswith("    "):
            lines[number] = _inline(line, page)
    lines = [re.sub(r"^(Raises|Returns|Yields):$", r"**\1**\n", line) for line in lines]
    return "\n".join(lines) + "\n" if lines else ""


def _inline(text: str, page: str) -> str:
    """Links names in backquotes to their places."""

    def link(match: re.Match[str]) -> str:
        target = page and _target(page, match[1])
        return f"[{match[0]}]({target})" if target else match[0]

    return re.sub(r"(?<!\[)`([A-Z]\w*|\w+(?:\.\w+)+)(?:\(\))?`", link, text)


def _fields(one: type) -> dict[str, tuple[str, str]]:
    """The public attributes of a class, with type and description: those that are declared, or set
    by the constructor with a description."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
    except (OSError, TypeError):
        return {}
    assert isinstance(body, ast.ClassDef)
    found: dict[str, tuple[str, str]] = {}
    declares = dataclasses.is_dataclass(one) or issubclass(one, msgspec.Struct)
    for node, words in _with_docs(body.body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if not node.target.id.startswith("_") and (declares or words):
                found[node.target.id] = (ast.unparse(node.annotation), words)
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
            found |= _set_by(node)
    return found


def _set_by(init: ast.FunctionDef) -> dict[str, tuple[str, str]]:
    """The public attributes with a description that a constructor sets."""
    kinds = {
        one.arg: ast.unparse(one.annotation)
        for one in (*init.args.args, *init.args.kwonlyargs)
        if one.annotation
    }
    found = {}
    for node, words in _with_docs(init.body):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)]):
                kind = kinds.get(ast.unparse(node.value), "")
            case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                kind = ast.unparse(node.annotation)
            case _:
                continue
        if words and not name.startswith("_"):
            found[name] = (kind, words)
    return found


def _with_docs(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Statements, each with the string behind it."""
    for number, node in enumerate(body):
        match body[number + 1 : number + 2]:
            case [ast.Expr(value=ast.Constant(value=str(text)))]:
                yield node, " ".join(text.split())
            case _:
                yield node, ""


def table(*rows: tuple[str, ...]) -> str:
    """A Markdown table; the first row is the header."""
    lines = [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines) + "\n"
