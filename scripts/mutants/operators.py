"""The mutations of a module, applied one at a time.

Text that only people or the type checker read is not changed: annotations, docstrings, sentences,
messages of errors and of the log, assertions, decorators.
"""

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

COMPARED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
CALCULATED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
LOGGED = {"debug", "info", "warning", "error", "exception", "critical"}
NAMED = {"TypeVar", "NewType", "ParamSpec", "ContextVar", "getLogger", "cast", "Logger"}
PROSE = re.compile("[A-Za-z]+ [a-z]+")
TEXT_CHARS_MAX = 120
# Entries of a large table are alike: of 50 or more mutants in one statement, every fifth is tested.
TABLE_MUTANTS_MIN, TABLE_STEP = 50, 5


@dataclass(frozen=True)
class Mutant:
    """One mutation, and its location."""

    place: str
    """The enclosing function or class; empty at the top of the module."""
    text: str
    """The original code, and its replacement."""
    lines: range
    """The lines of its statement; of a statement with a body, those before the body."""
    function: tuple[str, int] | None
    """The outermost enclosing function, by its qualified name and first line. None if the code runs
    when the module is imported."""
    parent: ast.AST
    field: str
    index: int | None
    node: ast.AST
    number: int = 1

    @property
    def name(self) -> str:
        """A unique name in the module that stays the same while the code around it changes."""
        again = f" ({self.number})" if self.number > 1 else ""
        return f"{self.place or 'module'} | {self.text}{again}"

    def apply(self) -> None:
        """Apply the mutation to the tree in which it was found."""
        if self.index is None:
            setattr(self.parent, self.field, self.node)
        else:
            getattr(self.parent, self.field)[self.index] = self.node


@dataclass(frozen=True)
class _Spot:
    """The position of the walk."""

    parent: ast.AST
    field: str
    index: int | None
    place: str = ""
    lines: range = range(0)
    function: tuple[str, int] | None = None
    told: bool = False
    """Whether it is within a message for people."""


def find(tree: ast.Module) -> list[Mutant]:
    """All mutants of a module, in the order of its text."""
    errors = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "onceward.errors"
        for alias in node.names
    }
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for mutant in _Walk(errors).children(tree, _Spot(tree, "body", None)):
        key = (mutant.place, mutant.text)
        seen[key] += 1
        found.append(replace(mutant, number=seen[key]))
    return _fewer_of_tables(found)


def _fewer_of_tables(mutants: list[Mutant]) -> list[Mutant]:
    found = []
    for _, same in groupby(mutants, lambda mutant: (mutant.function, mutant.lines)):
        members = list(same)
        large = members[0].function is None and len(members) >= TABLE_MUTANTS_MIN
        found += members[:: TABLE_STEP if large else 1]
    return found


class _Walk:
    def __init__(self, errors: set[str]) -> None:
        self._errors = errors

    def children(self, node: ast.AST, spot: _Spot) -> Iterator[Mutant]:
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "format_spec"):
                continue
            inner = replace(spot, parent=node, field=field)
            if isinstance(value, list):
                for index, child in enumerate(value):
                    if isinstance(child, ast.AST):
                        yield from self.visit(child, replace(inner, index=index))
            elif isinstance(value, ast.AST):
                yield from self.visit(value, replace(inner, index=None))

    def visit(self, node: ast.AST, spot: _Spot) -> Iterator[Mutant]:
        if _left_alone(node):
            return
        if isinstance(node, ast.stmt):
            spot = replace(spot, lines=_head(node))
        if not spot.told:
            for new in _changes(node):
                yield self._mutant(node, new, spot)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from self._named(node, spot)
        elif isinstance(node, ast.Lambda):
            yield from self.children(node.args, spot)
            function = spot.function or (_qualified(spot, "<lambda>"), node.lineno)
            inside = replace(spot, function=function, parent=node, field="body", index=None)
            yield from self.visit(node.body, inside)
        elif isinstance(node, ast.Call) and _called(node) in self._errors | {"ValueError"}:
            told = replace(spot, told=True, parent=node, field="args")
            for index, arg in enumerate(node.args):
                yield from self.visit(arg, replace(told, index=index))
            for keyword in node.keywords:
                yield from self.children(keyword, spot)
        elif isinstance(node, ast.JoinedStr):
            for part in node.values:
                if isinstance(part, ast.FormattedValue):
                    yield from self.children(part, spot)
        else:
            yield from self.children(node, spot)

    def _named(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, spot: _Spot
    ) -> Iterator[Mutant]:
        qualified = _qualified(spot, node.name)
        inside = replace(spot, place=qualified)
        if not isinstance(node, ast.ClassDef):
            # Defaults and annotations of a function are evaluated where the function is defined.
            yield from self.children(node.args, inside)
            if spot.function is None:
                first = min(part.lineno for part in (node, *node.decorator_list))
                inside = replace(inside, function=(qualified, first))
        for index, statement in enumerate(node.body):
            here = replace(inside, parent=node, field="body", index=index)
            yield from self.visit(statement, here)

    def _mutant(self, node: ast.AST, new: ast.AST, spot: _Spot) -> Mutant:
        ast.copy_location(new, node)
        ast.fix_missing_locations(new)
        return Mutant(
            spot.place,
            _text(node, new, spot),
            spot.lines,
            spot.function,
            spot.parent,
            spot.field,
            spot.index,
            new,
        )


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """The possible replacements of a node."""
    match node:
        case ast.Compare():
            for index, op in enumerate(node.ops):
                ops = [*node.ops]
                ops[index] = COMPARED[type(op)]()
                yield ast.Compare(node.left, ops, node.comparators)
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield ast.BoolOp(other, node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield copy.copy(node.operand)
        case ast.UnaryOp(op=ast.USub()) if not isinstance(node.operand, ast.Constant):
            yield copy.copy(node.operand)
        case ast.BinOp() if type(node.op) in CALCULATED:
            yield ast.BinOp(node.left, CALCULATED[type(node.op)](), node.right)
        case ast.AugAssign():
            yield ast.AugAssign(node.target, CALCULATED[type(node.op)](), node.value)
            yield ast.Pass()
        case ast.Constant():
            yield from _constants(node.value)
        case ast.If() | ast.While() | ast.IfExp() if _plain(node.test):
            new = copy.copy(node)
            new.test = ast.UnaryOp(ast.Not(), node.test)
            yield new
        case ast.comprehension():
            for index, test in enumerate(node.ifs):
                if _plain(test):
                    turned = copy.copy(node)
                    turned.ifs = [*node.ifs]
                    turned.ifs[index] = ast.UnaryOp(ast.Not(), test)
                    yield turned
        case ast.Return(value=ast.expr()) if _plain(node.value):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.Delete():
            yield ast.Pass()
        case ast.Assign() if all(
            isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets
        ):
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()


def _constants(value: object) -> Iterator[ast.Constant]:
    match value:
        case bool():
            yield ast.Constant(not value)
        case int() | float():
            yield ast.Constant(value + 1)
        case str() if not PROSE.search(value):
            yield ast.Constant(value + "x")
        case bytes():
            yield ast.Constant(value + b"x")


def _plain(test: ast.expr) -> bool:
    """Whether no other mutation negates it."""
    turned = isinstance(test, ast.Compare | ast.BoolOp | ast.Constant)
    return not turned and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))


def _left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__slots__" | "__all__")]):
            return True
        case ast.Call(func=ast.Attribute(attr=attr, value=ast.Name(id="log" | "_log"))):
            return attr in LOGGED
        case ast.Expr(value=ast.Call() as call):
            return _left_alone(call)
        case ast.Call():
            return _called(node) in NAMED
    return False


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _qualified(spot: _Spot, name: str) -> str:
    if not spot.place:
        return name
    return f"{spot.place}.<locals>.{name}" if spot.function else f"{spot.place}.{name}"


def _head(statement: ast.stmt) -> range:
    body = getattr(statement, "body", None)
    last = statement.end_lineno or statement.lineno
    if body:
        last = max(statement.lineno, body[0].lineno - 1)
    return range(statement.lineno, last + 1)


def _text(node: ast.AST, new: ast.AST, spot: _Spot) -> str:
    if isinstance(new, ast.Pass):
        return f"without {_short(node)}"
    if isinstance(node, ast.If | ast.While):
        return f"{_short(node.test)} → {_short(new.test)}"  # type: ignore[attr-defined]
    if isinstance(node, ast.Constant) and isinstance(
        spot.parent, ast.expr | ast.keyword | ast.stmt
    ):
        # A number alone is ambiguous: include the code around it.
        around = copy.copy(spot.parent)
        if spot.index is None:
            setattr(around, spot.field, new)
        else:
            items = [*getattr(around, spot.field)]
            items[spot.index] = new
            setattr(around, spot.field, items)
        was, now = _short(spot.parent), _short(around)
        if len(was) <= TEXT_CHARS_MAX and was != now:
            return f"{was} → {now}"
    return f"{_short(node)} → {_short(new)}"


def _short(node: ast.AST) -> str:
    if isinstance(node, ast.keyword):
        return f"{node.arg}={ast.unparse(node.value)}"
    return ast.unparse(node).replace("\n", " ").strip()
