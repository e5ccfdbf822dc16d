"""Field docs: the strings under the fields of structs, as descriptions for people."""

import ast
import inspect
import sys
from functools import cache

import msgspec


def field_docs(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The docs of a struct's fields by name, inherited ones included.

    They are read from the source. Where there is no source, the result is empty.
    """
    docs: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        docs |= _docs_of_module(base.__module__).get(base.__name__, {})
    return docs


@cache
def _docs_of_module(name: str) -> dict[str, dict[str, str]]:
    """The docs of fields by class."""
    if not name.startswith("onceward."):
        return {}
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except OSError:
        return {}
    return {node.name: _docs_of_class(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _docs_of_class(node: ast.ClassDef) -> dict[str, str]:
    docs: dict[str, str] = {}
    for field, after in zip(node.body, node.body[1:], strict=False):
        match field, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                docs[name] = " ".join(text.split())
    return docs
