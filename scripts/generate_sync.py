"""Writes onceward/sync/app and onceward/sync/client: synchronous forms of asynchronous classes.

`scripts.sync_classes` lists them. The signatures are copied from the source. Objects with
coroutines are given and returned as their synchronous forms, and functions of callers are plain
functions.

python -m scripts.generate_sync
"""

import ast
import builtins
import copy
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from scripts.generate_python import WIDTH, formatted
from scripts.sync_classes import FILES, Source

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "onceward" / "sync"


# What modules of the asynchronous API call these classes, and their synchronous names.
_RENAMED = {"UserTransaction": "Transaction"}
# The types of a caller's functions, and their synchronous form.
_HOOKS = ("Subscriber", "Progress")
_FUNCTIONS = {
    "Credentials": "str | Callable[[], str] | None",
    "Handler": "Callable[[SyncWorkerJob], Any]",
}
# Contexts: what they give, and the function that makes its synchronous form.
_DECLARE = "onceward.work.handlers", "Declare"
_CONTEXTS = {"Hold": ("Lock", "Lock"), "HeldLock": ("HeldLocks", "lambda _, held: held")}
# Names that generated code uses.
_NAMES = {
    "Any": "from typing import Any",
    "Callable": "from collections.abc import Callable",
    "HeldLocks": "from onceward.api.locks import HeldLocks",
    "Iterator": "from collections.abc import Iterator",
    "Self": "from typing import Self",
    "SyncTransaction": "from onceward.store.user_records import SyncTransaction",
    "SyncWorkerJob": "from onceward.client.work import SyncWorkerJob",
    "Transaction": "from onceward.sync.app.transaction import Transaction",
    "AbstractContextManager": "from contextlib import AbstractContextManager",
    "TracebackType": "from types import TracebackType",
    "overload": "from typing import overload",
    "Declare": (
        "from onceward.sync.app.declare import Declare\nfrom onceward.sync.handlers import declares"
    ),
    "partial": "from functools import partial",
    **{
        name: f"from onceward.sync.bridge import {name}"
        for name in ("Context", "Facade", "Portal", "Root", "Signal", "run_until_signal", "target")
    },
}
# Words of docstrings.
_WORDS = {
    "async def fn(job: Job)": "def fn(job: SyncJob)",
    "async def fn": "def fn",
    "an `async with`": "a `with`",
    "`async with`": "`with`",
    "Await it to wait until": "`wait` waits until",
}
_DUNDERS = ("__getitem__", "__contains__", "__len__", "__iter__")
_INIT = '"""Synchronous classes, from `onceward.{}`. Written by `make generate`."""\n'

Wrap = Callable[[str], str]
"""Makes the expression of a result from that of a call."""
Method = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """The source of a module: its imports by name, and its classes."""

    def __init__(self, name: str) -> None:
        path = ROOT.joinpath(*name.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        self.name = name
        self.origin: dict[str, tuple[str, str]] = {}
        """The module of each name, and its name there; without one for a module."""
        self.classes: dict[str, ast.ClassDef] = {}
        self._read(ast.parse(path.read_text(encoding="utf-8")).body)

    def _read(self, body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.If):  # for type checkers
                self._read(node.body)
            elif isinstance(node, ast.ImportFrom):
                for one in node.names:
                    self.origin[one.asname or one.name] = str(node.module), one.name
            elif isinstance(node, ast.Import):
                for one in node.names:
                    self.origin[one.asname or one.name] = one.name, ""
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
                self.origin[node.name] = self.name, node.name
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                for one in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(one, ast.Name):
                        self.origin[one.id] = self.name, one.id

    def statement(self, name: str) -> str | None:
        """The import of a name that the module uses."""
        if name not in self.origin:
            return None
        origin, there = self.origin[name]
        if not there:
            return f"import {origin}"
        return f"from {origin} import {there}" + ("" if there == name else f" as {name}")


_module = cache(Module)
_HOMES = {
    (one.module, one.name): f"onceward.sync.{path.replace('/', '.')}"
    for path, sources in FILES.items()
    for one in sources
}


def files() -> dict[str, str]:
    """The text of each file by its path in the folder, formatted."""
    texts = {f"{one}/__init__.py": _INIT.format(one) for one in ("app", "client")}
    texts["app/declare.py"] = _declare()
    texts |= {f"{path}.py": _File(path, sources).text() for path, sources in FILES.items()}
    return formatted(texts)


def _declare() -> str:
    """The decorator that declares a handler: the same signatures, with another class of results."""
    place = _module(_DECLARE[0])
    found = place.classes[_DECLARE[1]]
    known = {"HandlerFunction": "from onceward.sync.handlers import HandlerFunction"}
    names = _names(found) - set(vars(builtins))
    imports = {known.get(name) or place.statement(name) or "" for name in names}
    doc = f"A synchronous class. Written by `make generate` from `{place.name}`."
    return "\n".join([f'"""{doc}"""', *sorted(imports), ast.unparse(found)])


class _File:
    """One file."""

    def __init__(self, path: str, sources: tuple[Source, ...]) -> None:
        self.module = f"onceward.sync.{path.replace('/', '.')}"
        self.defined = {_RENAMED.get(one.name, one.name) for one in sources}
        self.imports: set[str] = set()
        self._sources = sources

    def text(self) -> str:
        classes = [_Class(self, one).text() for one in self._sources]
        of = f"`{self._sources[-1].module}`"
        doc = f"Synchronous classes. Written by `make generate` from {of}."
        return "\n".join(
            [
                f'"""{doc}"""',
                "from __future__ import annotations",
                *sorted(self.imports),
                *classes,
            ]
        )


class _Class:
    """One class."""

    def __init__(self, file: _File, source: Source) -> None:
        self._file = file
        self._source = source
        self._module = _module(source.module)
        self._place = self._module
        """The module whose names are used: that of the class, or of a base class."""

    def text(self) -> str:
        name = self._source.name
        known = f"Async{name}"
        self._file.imports.add(f"from {self._source.module} import {name} as {known}")
        found = self._module.classes[name]
        base = "Root" if self._source.opened else "Facade"
        members = [*self._attributes(found), *self._methods()]
        members.sort(key=lambda one: not one.startswith("def __init__"))
        if self._source.opened:
            members.append(self._source.opened)
            for word in ("TracebackType", "Self", "partial", "run_until_signal"):
                if word in self._source.opened:
                    self._import(word)
        self._import(base)
        return "\n".join(
            [
                f"class {_RENAMED.get(name, name)}({base}[{known}]):",
                textwrap.indent(_doc(found) + "\n", "    "),
                *[textwrap.indent(one, "    ") for one in members],
            ]
        )

    def _attributes(self, found: ast.ClassDef) -> Iterator[str]:
        docs = _attribute_docs(found)
        for name, kind in self._source.attributes.items():
            text, wrap = self._result(ast.parse(kind, mode="eval").body)
            value = f"self._target.{name}"
            if self._source.in_loop and "[" in kind:
                value = f"self._portal.enter(lambda: dict({value}))"
            doc = textwrap.indent(f'"""{docs[name]}"""\n', "    ") if name in docs else ""
            yield f"@property\ndef {name}(self) -> {text}:\n{doc}    return {wrap(value)}"

    def _functions(self) -> Iterator[Method]:
        """The methods, those of base classes included."""
        seen: set[str] = set()
        place, name = self._module, self._source.name
        while name in place.classes:
            node = place.classes[name]
            self._place = place
            found = [one for one in node.body if isinstance(one, Method)]
            yield from (one for one in found if one.name not in seen)
            seen |= {one.name for one in found}
            base = node.bases[0] if node.bases else None
            if not isinstance(base, ast.Name) or base.id in ("Operations", "Transport"):
                return
            origin, name = place.origin.get(base.id, ("", ""))
            if origin != place.name and not origin.startswith("onceward.client"):
                return
            place = _module(origin)

    def _methods(self) -> Iterator[str]:
        for node in self._functions():
            if node.name == "__init__" and self._source.opened and self._is_own(node):
                yield self._init(node)
            elif node.name == "__await__":
                yield self._await(node)
            elif node.name in _DUNDERS or self._is_wanted(node.name):
                yield self._method(node)
        for module, name, method in self._source.also:
            self._place = _module(module)
            [node] = [
                one
                for one in self._place.classes[name].body
                if isinstance(one, Method) and one.name == method
            ]
            yield self._method(node)

    def _is_own(self, node: Method) -> bool:
        """Whether callers make objects of the class themselves."""
        return node.name not in self._source.without

    def _is_wanted(self, name: str) -> bool:
        if name.startswith("_") or name in self._source.without:
            return False
        return not self._source.only or name in self._source.only

    def _init(self, node: Method) -> str:
        passed, signature = self._signature(node)
        made = f"Async{self._source.name}({', '.join(passed)})"
        self._import("Portal")
        lines = [f"super().__init__(Portal(), {made})"]
        if self._source.name == "Client":
            lines = [
                f"super().__init__(Portal(renews=True), {made})",
                "self._target.opens_itself = True",
                "self._portal.closes_with(self._target.close)",
            ]
        body = textwrap.indent("\n".join([_doc(node), *lines]), "    ")
        return f"def __init__({signature}) -> None:\n{body}"

    def _await(self, node: Method) -> str:
        assert isinstance(node.returns, ast.Subscript)
        assert isinstance(node.returns.slice, ast.Tuple)
        text, _ = self._result(node.returns.slice.elts[2])
        doc = (
            f'"""Wait until it is durable.\n\nReturns {_lower(ast.get_docstring(node) or "")}\n"""'
        )
        body = textwrap.indent(f"{doc}\nreturn self._portal.run(self._target)", "    ")
        return f"def wait(self) -> {text}:\n{body}"

    def _method(self, node: Method) -> str:
        decorators = [ast.unparse(one) for one in node.decorator_list]
        assert node.returns is not None, node.name
        passed, signature = self._signature(node)
        text, wrap = self._result(node.returns)
        if "contextmanager" in decorators:
            text = text.replace("Iterator", "AbstractContextManager")
            self._import("AbstractContextManager")
        marks = "".join(f"@{one}\n" for one in decorators if one in ("overload", "property"))
        head = f"{marks}def {node.name}({signature}) -> {text}:"
        if "overload" in decorators:
            self._import("overload")
            return f"{head} ..."
        body = textwrap.indent(
            f"{_doc(node)}\nreturn {self._body(node, decorators, passed, wrap)}".lstrip(), "    "
        )
        return f"{head}\n{body}"

    def _body(self, node: Method, decorators: list[str], passed: list[str], wrap: Wrap) -> str:
        name, arguments = f"self._target.{node.name}", ", ".join(passed)
        if "property" in decorators:
            return wrap(f"self._portal.enter(lambda: {name})" if self._source.in_loop else name)
        if "contextmanager" in decorators:
            return f"self._portal.inside({name}({arguments}), Saved)"
        if node.name == "__iter__":
            return "iter(self._portal.enter(lambda: list(self._target)))"
        if fn := _transaction_of(node):
            made = "lambda tx: back(Transaction(self._portal, tx))"
            inner = ", ".join(made if one == fn else one for one in passed)
            return f"self._portal.run_with({fn}, lambda back: {name}({inner}))"
        if isinstance(node, ast.AsyncFunctionDef) and not _is_generator(node):
            return wrap(f"self._portal.run({name}({arguments}))")
        if self._source.in_loop:
            return wrap(f"self._portal.enter({', '.join([name, *passed])})")
        return wrap(f"{name}({arguments})")

    # Signatures.

    def _signature(self, node: Method) -> tuple[list[str], str]:
        """The expressions that are passed on, and the text of the parameters."""
        found = copy.deepcopy(node.args)
        passed = [self._passed(one) for one in [*found.posonlyargs, *found.args][1:]]
        if found.vararg:
            passed.append(f"*{self._passed(found.vararg)}")
        passed += [f"{one.arg}={self._passed(one)}" for one in found.kwonlyargs]
        if found.kwarg:
            passed.append(f"**{self._passed(found.kwarg)}")
        for default in [*found.defaults, *found.kw_defaults]:
            if default is not None:
                self._need(default)
        return passed, ast.unparse(found)

    def _passed(self, argument: ast.arg) -> str:
        """Write the type of an argument, and return the expression that is passed on."""
        assert argument.annotation is not None, argument.arg
        given = _unquoted(argument.annotation)
        names = _names(given)
        argument.annotation = self._renamed(given)
        if "Handler" in names:
            return argument.arg  # workers run plain functions in threads
        if names & _FUNCTIONS.keys():
            return f"self._portal.asynchronous({argument.arg})"
        if names & set(_HOOKS) or {"object", "Callable"} <= names:
            return f"self._portal.hook({argument.arg})"
        if "Awaitable" not in names and any(self._home(name) for name in names):
            self._import("target")
            return f"target({argument.arg})"
        return argument.arg

    def _result(self, given: ast.expr) -> tuple[str, Wrap]:
        """The text of the type of a result, and the expression that makes it."""
        given = _unquoted(given)
        text = ast.unparse(given)
        if text == "asyncio.Event":
            self._import("Signal")
            return "Signal", lambda call: f"Signal(self._portal, {call})"
        if text in _CONTEXTS:
            entered, make = _CONTEXTS[text]
            self._import("Context")
            self._import(entered)
            return f"Context[{entered}]", lambda call: f"Context(self._portal, {call}, {make})"
        written = ast.unparse(self._renamed(given))
        if text == "Declare":
            return text, lambda call: f"declares(self, {call})"
        if text.startswith("AsyncIterator["):
            return written, lambda call: f"self._portal.iterate({call})"
        if self._source.in_loop and text in ("Unsubscribe", "Callable[[], None]"):
            return written, lambda call: f"self._portal.function({call})"
        for name in sorted(_names(given)):
            if self._home(name):
                return written, self._maker(_RENAMED.get(name, name), "None" in text)
        return written, str

    def _maker(self, name: str, optional: bool) -> Wrap:
        """The expression that makes a synchronous object."""
        portal = "self._portal"
        if name == "Live":  # its connection stays in this process
            self._import("Portal")
            portal = "Portal()"
        if optional:
            return lambda call: f"None if (found := {call}) is None else {name}({portal}, found)"
        return lambda call: f"{name}({portal}, {call})"

    # Names.

    def _renamed(self, given: ast.expr) -> ast.expr:
        """A type with synchronous names, which are imported."""
        plain = bool(_names(given) & {"UserTransaction"})
        renamed: ast.expr = _Renamed(plain).visit(copy.deepcopy(given))
        self._need(renamed)
        return renamed

    def _home(self, name: str) -> str:
        """The synchronous module of a class; empty if the class is used as it is."""
        if name in (*_RENAMED, "AnyTransaction", "Transaction"):
            return "onceward.sync.app.transaction"
        return _HOMES.get(_defined(self._place, name), "")

    def _need(self, node: ast.AST) -> None:
        for name in _names(node):
            self._import(name)

    def _import(self, name: str) -> None:
        """Import a name, unless the file defines it."""
        if name in self._file.defined:
            return
        home = "" if name in _NAMES else self._home(name)
        statement = f"from {home} import {name}" if home else _NAMES.get(name)
        statement = statement or self._place.statement(name) or self._module.statement(name)
        if statement is not None:
            self._file.imports.add(statement)
        else:
            assert name in vars(builtins) or f"{name}(" in "".join(self._file.defined), name


class _Renamed(ast.NodeTransformer):
    """Writes synchronous names; with `plain`, functions of callers are plain ones."""

    def __init__(self, plain: bool) -> None:
        self._plain = plain

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in _FUNCTIONS:
            return ast.parse(_FUNCTIONS[node.id], mode="eval").body
        if node.id in ("AnyTransaction", "Transaction"):
            return ast.parse("Transaction | SyncTransaction", mode="eval").body
        renamed = {**_RENAMED, "AsyncIterator": "Iterator"}
        return ast.Name(renamed.get(node.id, node.id))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if self._plain and ast.unparse(node.value) == "Awaitable":
            return node.slice
        return node


class _Unquoted(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.parse(node.value, mode="eval").body if isinstance(node.value, str) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if ast.unparse(node.value) != "Literal":
            self.generic_visit(node)
        return node


def _defined(place: Module, name: str) -> tuple[str, str]:
    """The module that defines a name, and its name there."""
    origin, there = place.origin.get(name, ("", ""))
    while there and origin.startswith("onceward") and origin != place.name:
        place = _module(origin)
        origin, there = place.origin.get(there, ("", ""))
    return origin, there


def _unquoted(node: ast.expr) -> ast.expr:
    found: ast.expr = _Unquoted().visit(copy.deepcopy(node))
    return found


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _transaction_of(node: Method) -> str | None:
    """The parameter that is a transaction of the caller."""
    for one in node.args.args:
        if one.annotation is not None and "[UserTransaction], Aw" in ast.unparse(one.annotation):
            return one.arg
    return None


def _is_generator(node: ast.AsyncFunctionDef) -> bool:
    return any(isinstance(one, ast.Yield) for one in ast.walk(node))


def _doc(node: Any) -> str:
    """The first paragraph of a docstring, for plain functions."""
    doc = (ast.get_docstring(node) or "").partition("\n\n")[0]
    for old, new in _WORDS.items():
        doc = doc.replace(old, new)
    return textwrap.fill(f'"""{doc}"""', WIDTH - 4) if doc else ""


def _lower(doc: str) -> str:
    return doc[:1].lower() + doc[1:]


def _attribute_docs(node: ast.ClassDef) -> dict[str, str]:
    """The texts below attributes, by the name of the attribute."""
    found = {}
    bodies = [node.body, *(one.body for one in node.body if isinstance(one, ast.FunctionDef))]
    for one, after in (pair for body in bodies for pair in pairwise(body)):
        if isinstance(one, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
            target = one.targets[0] if isinstance(one, ast.Assign) else one.target
            name = getattr(target, "attr", getattr(target, "id", ""))
            if isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
                found[name] = textwrap.dedent(after.value.value).strip()
    return found


def main() -> None:
    texts = files()
    for name, text in texts.items():
        path = FOLDER / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(f"wrote {len(texts)} files to {FOLDER.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
