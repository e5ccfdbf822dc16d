"""Writes onceward/client/operations: the methods of the Python client, from declared operations.

python -m scripts.generate_python
"""

import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET

from onceward import api
from onceward.api import NOUNS, OPERATIONS, room_changes
from onceward.api.arguments import Argument, arguments
from onceward.api.operation import Operation
from onceward.errors import BadInput, class_of

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "onceward" / "client" / "operations"
WIDTH = 96

# For programs without other knowledge of the server, not for clients.
LEFT_OUT = {"plain_timers"}
# The parameters that continue a list.
CURSORS = ("after", "since")
_MODULES: list[ModuleType] = [
    one
    for one in (*vars(api).values(), room_changes)
    if isinstance(one, ModuleType) and one.__name__.startswith("onceward.api.")
]
_INIT = '"""Methods of the client, one class for each noun. Written by `make generate`."""\n'
_BASE = '''\
"""The base of the generated classes."""

from onceward.client.transport import Transport


class Operations:
    """Methods for the operations on one noun."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
'''


def operations_by_noun() -> dict[str, list[Operation[Any]]]:
    """The operations that clients have as methods."""
    found: dict[str, list[Operation[Any]]] = {}
    for one in OPERATIONS.values():
        if one.kind == "call" and one.noun not in LEFT_OUT:
            found.setdefault(one.noun, []).append(one)
    return found


def class_name(noun: str) -> str:
    return f"{noun.capitalize()}Operations"


def files() -> dict[str, str]:
    """The text of each file by name, formatted."""
    texts = {"__init__.py": _INIT, "base.py": _BASE}
    for noun, operations in operations_by_noun().items():
        texts[f"{noun}.py"] = _File(noun, operations).text()
    return formatted(texts)


def formatted(texts: dict[str, str]) -> dict[str, str]:
    """The texts of files, formatted."""
    with tempfile.TemporaryDirectory(prefix="onceward-generate-") as name:
        folder = Path(name)
        for path, text in texts.items():
            folder.joinpath(path).parent.mkdir(exist_ok=True)
            folder.joinpath(path).write_text(text, encoding="utf-8")
        config = ["--quiet", "--no-cache", "--config", str(ROOT / "pyproject.toml")]
        ours = ["--config", "lint.isort.known-first-party = ['onceward']"]
        for command in (["check", "--fix-only", "--select", "I", *ours], ["format"]):
            arguments = [sys.executable, "-m", "ruff", *command, *config, name]
            done = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT)
            assert done.returncode == 0, done.stderr
        return {path: folder.joinpath(path).read_text(encoding="utf-8") for path in texts}


class _File:
    """The module of one noun."""

    def __init__(self, noun: str, operations: list[Operation[Any]]) -> None:
        self._noun = noun
        self._operations = operations
        [self._module] = {module for one in operations if (module := _home(one))}
        self._imports: set[str] = set()
        # A method of this name hides the type in the rest of the class.
        self._list = "list"
        if any(one.verb == "list" for one in operations):
            self._list = "builtins.list"

    def text(self) -> str:
        members = [text for one in self._operations for text in self._members(one)]
        short = self._module.__name__.rpartition(".")[2]
        self._imports |= {
            f"from onceward.api import {short} as api",
            "from onceward.client.operations.base import Operations",
        }
        if any("builtins." in one for one in members):
            self._imports.add("import builtins")
        doc = f"Client methods for {self._noun}, from `{self._module.__name__}`."
        return "\n".join(
            [
                f'"""{doc} Written by `make generate`."""\n',
                *sorted(self._imports),
                f"class {class_name(self._noun)}(Operations):",
                textwrap.indent(_docstring([NOUNS[self._noun]]), "    "),
                *[textwrap.indent(one, "    ") for one in members],
            ]
        )

    def _members(self, operation: Operation[Any]) -> Iterator[str]:
        found = arguments(operation)
        signature = ", ".join(self._signature(found))
        result = self._result(operation)
        yield "\n".join(
            [
                f"async def {operation.verb}(self, {signature}) -> {result}:".replace(", )", ")"),
                textwrap.indent(_docstring(_words(operation, found)), "    "),
                f"    return {self._call(operation, found)}",
            ]
        )
        if paged := entries(operation):
            yield self._iterator(operation, found, signature, *paged)

    def _signature(self, found: Sequence[Argument]) -> Iterator[str]:
        yield from (f"{one.name}: {self._given(one)}" for one in found if one.required)
        if not all(one.required for one in found):
            yield "*"
        for one in found:
            if not one.required:
                yield f"{one.name}: {self._given(one)} = {self._default(one)}"

    def _given(self, argument: Argument) -> str:
        """The type of an argument."""
        kinds: list[str] = []
        for one in _alternatives(argument.type):
            if one is NoneType:
                continue
            kinds += self._kinds(argument, one)
        if argument.default is UNSET and not argument.required:
            kinds.append(self._name("msgspec", "UnsetType"))
        if NoneType in _alternatives(argument.type) or self._default(argument) == "None":
            kinds += ["None"] if kinds != ["Any"] else []
        return " | ".join(dict.fromkeys(kinds))

    def _kinds(self, argument: Argument, type_: Any) -> list[str]:
        if argument.json:
            return [self._type(dict[str, Any], given=True)]
        if argument.duration:
            return ["float"]
        if type_ is datetime:
            return [self._type(datetime), "str"]
        if argument.struct is not None:
            members = self._type(dict[str, Any], given=True)
            struct = self._type(argument.struct)
            if get_origin(type_) is list:
                return [f"{self._name('collections.abc', 'Sequence')}[{struct} | {members}]"]
            return [struct, members]
        if get_origin(type_) is list and all(
            isinstance(one, type) and issubclass(one, msgspec.Struct)
            for one in _alternatives(get_args(type_)[0])
        ):
            element = self._type(get_args(type_)[0])
            members = self._type(dict[str, Any], given=True)
            return [f"{self._name('collections.abc', 'Sequence')}[{element} | {members}]"]
        return [self._type(type_, given=True)]

    def _default(self, argument: Argument) -> str:
        default = argument.default
        if argument.required:
            return ""
        if default is UNSET:
            return self._name("msgspec", "UNSET")
        if argument.json or isinstance(default, dict | msgspec.Struct):
            return "None"
        if isinstance(default, list | tuple):
            return repr(tuple(default))
        if argument.duration and default is not None:
            return repr(default / 1000)
        return repr(default)

    def _result(self, operation: Operation[Any]) -> str:
        if not operation.returns:
            return self._type(operation.response)
        return self._type(get_type_hints(operation.response)[operation.returns])

    def _call(self, operation: Operation[Any], found: Sequence[Argument]) -> str:
        constant = next(name for name, one in vars(self._module).items() if one is operation)
        words = [f"api.{constant}", *(one.name for one in found if one.place == "path")]
        for place in ("body", "query"):
            struct = getattr(operation, place)
            if struct is not None:
                partial = place == "body" and operation.partial
                maker = self._helper("given") if partial else self._type(struct)
                members = [f"{o.field}={self._sent(o)}" for o in found if o.place == place]
                words.append(f"{place}={maker}({', '.join(members)})")
        call = f"await self._transport.run({', '.join(words)})"
        return f"({call}).{operation.returns}" if operation.returns else call

    def _sent(self, argument: Argument) -> str:
        """The expression of a member of a request."""
        name, default = argument.name, argument.default
        kinds = [one for one in _alternatives(argument.type) if one is not NoneType]
        origins = {get_origin(one) or one for one in kinds}
        said = f'"{name}", {name}'
        if argument.json:
            inner = f"{self._helper('as_dict')}({said}) or {{}}"
            return f'{self._helper("as_json")}("{name}", {inner})'
        if argument.duration:
            return f"{self._helper('in_ms')}({said})"
        if argument.struct is not None:
            helper = self._helper("as_structs" if list in origins else "as_struct")
            found = f"{helper}({said}, {self._type(argument.struct)})"
        elif origins & {list, tuple}:
            found = f"{self._helper('as_tuple' if tuple in origins else 'as_list')}({said})"
        elif dict in origins:
            found = f"{self._helper('as_dict')}({said})"
        elif datetime in origins:
            found = f"{self._helper('as_time')}({said})"
        else:
            found = name
        if isinstance(default, msgspec.Struct):
            return f"{found} or {self._type(type(default))}()"
        return f"{found} or {{}}" if isinstance(default, dict) else found

    def _iterator(
        self,
        operation: Operation[Any],
        found: Sequence[Argument],
        signature: str,
        cursor: str,
        member: str,
        entry: Any,
    ) -> str:
        name = f"iterate_{operation.verb}".replace("_list", "")
        kind = f"{self._name('collections.abc', 'AsyncIterator')}[{self._type(entry)}]"
        words = [one.name if one.required else f"{one.name}={one.name}" for one in found]
        summary = f"Iterate over the entries of all pages of `{operation.verb}`."
        doc = [summary, "Arguments and errors are the same. `limit` is the size of a page."]
        if "limit" not in [one.name for one in found]:
            doc[1] = "Arguments and errors are the same."
        return "\n".join(
            [
                f"async def {name}(self, {signature}) -> {kind}:",
                textwrap.indent(_docstring(doc), "    "),
                "    while True:",
                f"        page = await self.{operation.verb}({', '.join(words)})",
                f"        for one in page.{member}:",
                "            yield one",
                "        if page.next is None:",
                "            return",
                f"        {cursor} = page.next",
            ]
        )

    def _helper(self, name: str) -> str:
        return self._name("onceward.api.arguments", name)

    def _name(self, module: str, name: str) -> str:
        self._imports.add(f"from {module} import {name}")
        return name

    def _type(self, type_: Any, *, given: bool = False) -> str:
        """The source of a type. For arguments (`given`), collections are as general as possible."""
        if get_origin(type_) is Annotated:
            return self._type(get_args(type_)[0], given=given)
        if type_ is Any:
            return self._name("typing", "Any")
        if type_ is None or type_ is NoneType:
            return "None"
        if alias := _alias(type_):
            return self._of_module(*alias)
        if get_origin(type_) in (Union, UnionType):
            return " | ".join(self._type(one, given=given) for one in get_args(type_))
        if get_origin(type_) is Literal:
            words = ", ".join(f'"{one}"' for one in get_args(type_))
            return f"{self._name('typing', 'Literal')}[{words}]"
        if (origin := get_origin(type_)) is not None:
            inner = [self._type(one, given=given) for one in get_args(type_) if one is not ...]
            if given and origin in (list, tuple):
                return f"{self._name('collections.abc', 'Sequence')}[{', '.join(inner)}]"
            if given and origin is dict:
                inner = [inner[0], self._type(get_args(type_)[1], given=True)]
                return f"{self._name('collections.abc', 'Mapping')}[{', '.join(inner)}]"
            return f"{self._list if origin is list else origin.__name__}[{', '.join(inner)}]"
        if type_.__module__ == "builtins":
            return str(type_.__name__)
        return self._of_module(type_.__module__, type_.__name__)

    def _of_module(self, module: str, name: str) -> str:
        if module == self._module.__name__:
            return f"api.{name}"
        return self._name(module, name)


def _home(operation: Operation[Any]) -> ModuleType | None:
    """The module that declares an operation."""
    return next(
        (m for m in _MODULES if any(one is operation for one in vars(m).values())),
        None,
    )


def _alternatives(type_: Any) -> tuple[Any, ...]:
    return get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)


def _alias(type_: Any) -> tuple[str, str] | None:
    """The module and the name of a named union or of named literals."""
    if get_origin(type_) not in (Union, UnionType, Literal):
        return None
    for module in reversed(_MODULES):
        source = Path(module.__file__ or "").read_text(encoding="utf-8")
        for name, one in vars(module).items():
            if get_origin(one) and one == type_ and f"\n{name} = " in source:
                return module.__name__, name
    return None


def entries(operation: Operation[Any]) -> tuple[str, str, Any] | None:
    """The cursor of a list, the member with its entries, and their type; None without pages."""
    hints = get_type_hints(operation.response)
    lists = [name for name, one in hints.items() if get_origin(one) is list]
    cursors = [
        one for one in CURSORS if operation.query and one in operation.query.__struct_fields__
    ]
    if "next" not in hints or not cursors or not lists:
        return None
    return cursors[0], lists[0], get_args(hints[lists[0]])[0]


def _words(operation: Operation[Any], found: Sequence[Argument]) -> list[str]:
    """The paragraphs of a docstring."""
    doc = [f"{operation.summary}."]
    if operation.description:
        doc.append(operation.description)
    if found:
        doc.append("\n".join(_bullet(one) for one in found))
    if operation.errors:
        doc.append(_raises(operation.errors))
    return doc


def _bullet(argument: Argument) -> str:
    text = f"- `{argument.name}`: {argument.doc}" if argument.doc else f"- `{argument.name}`"
    return textwrap.fill(text, WIDTH - 4, subsequent_indent="  ", break_on_hyphens=False)


def _raises(codes: Sequence[str]) -> str:
    """The classes of errors; those without a separate class by code."""
    classes = {code: class_of(code) for code in codes}
    named = [one.__name__ for one in classes.values() if one is not BadInput]
    plain = [code for code, one in classes.items() if one is BadInput]
    words = [f"`{name}`" for name in dict.fromkeys(named)]
    if plain:
        words.append(f"`BadInput` ({', '.join(plain)})")
    return f"Raises {', '.join(words)}."


def _docstring(paragraphs: Sequence[str]) -> str:
    texts = []
    for one in paragraphs:
        texts.append(one if one.startswith("- ") else textwrap.fill(one, WIDTH - 4))
    text = "\n\n".join(texts)
    if "\n" not in text:
        return f'"""{text}"""'
    return f'"""{text}\n"""'


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    texts = files()
    for path in FOLDER.glob("*.py"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
