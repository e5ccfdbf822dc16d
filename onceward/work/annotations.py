"""Types of bodies and results, from the annotations of handlers and steps."""

import inspect
import sys
from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Never, NoReturn, Union, get_args, get_origin, get_type_hints

from onceward.conversion import Converter, converter
from onceward.errors import BadInput
from onceward.functions import is_async

NO_TYPE = (Any, object, None, NoneType, Never, NoReturn)
"""Annotations of results that are stored as they are."""
_AWAITABLE = (Awaitable, Coroutine, Future)
# From Python 3.14 on, annotations are evaluated when they are read. Undefined names do not matter.
_FORMAT: dict[str, Any] = {}
if sys.version_info >= (3, 14):
    from annotationlib import Format

    _FORMAT["annotation_format"] = Format.FORWARDREF
_JSON_TYPES = (str, int, float, bool, list, dict)


class Undefined(Exception):
    """An annotation that cannot be evaluated."""


def result_converter(fn: Callable[..., Any]) -> Converter | None:
    """The converter of the result of a step; None if the result is plain JSON: if the type is one
    that JSON has, cannot be converted, or is missing."""
    if isinstance(fn, partial):
        return result_converter(fn.func)
    if not isinstance(fn, type) and not inspect.isroutine(fn):
        fn = type(fn).__call__
    try:
        if not getattr(fn, "__annotations__", None) and not isinstance(fn, type):
            return None  # fast, because lambdas are the most common steps
        result = fn if isinstance(fn, type) else awaited(evaluated(fn, annotations(fn)[1]))
        return None if _is_json(result) else converter(result)
    except (Undefined, BadInput, NameError):
        return None


def _is_json(type_: Any) -> bool:
    """Whether JSON has all values of a type, such as `dict[str, int | None]`."""
    if type_ in _JSON_TYPES or type_ in NO_TYPE:
        return True
    origin, parts = get_origin(type_), get_args(type_)
    if origin is dict and parts[0] not in (str, Any):
        return False  # JSON has text keys
    return origin in (list, dict, Union, UnionType) and all(map(_is_json, parts))


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function; names in annotations need not exist. Raises `TypeError` and
    `ValueError` for some functions in C."""
    return inspect.signature(fn, **_FORMAT)


def annotations(fn: Callable[..., Any]) -> tuple[Any, Any]:
    """The annotations of the first parameter and of the result."""
    try:
        signature = signature_of(fn)
    except (TypeError, ValueError):  # some functions in C have none
        return Any, Any
    first = next(iter(signature.parameters.values()), None)
    found = (Any if first is None else first.annotation, signature.return_annotation)
    return tuple(Any if one is inspect.Signature.empty else one for one in found)  # type: ignore[return-value]


def evaluated(fn: Callable[..., Any], annotation: Any, **known: Any) -> Any:
    """The type in an annotation, which may be text or contain text. `known` are names that the
    module of the function need not import. Raises `Undefined`."""
    while isinstance(fn, partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    scope = getattr(fn, "__globals__", None) or getattr(type(fn).__call__, "__globals__", {})
    one = SimpleNamespace(__annotations__={"one": annotation})
    try:
        return get_type_hints(one, globalns={**known, **scope}, include_extras=True)["one"]
    except Exception as error:
        text = getattr(annotation, "__forward_arg__", annotation)
        raise Undefined(f"{text!r}: {error}") from error


def is_coroutine(fn: Callable[..., Any]) -> bool:
    """Whether a function is asynchronous: declared so, or annotated to return an awaitable."""
    if is_async(fn):
        return True
    try:
        result = evaluated(fn, annotations(fn)[1])
    except Undefined:
        return False
    return result in _AWAITABLE or awaited(result) is not result


def awaited(result: Any) -> Any:
    """The result of an awaitable that a plain function returns; any other type itself."""
    if get_origin(result) in _AWAITABLE:
        return get_args(result)[-1]
    return result


def declared_names(kind: type) -> Iterable[str]:
    """The names of attributes that a class itself declares with a type."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format, get_annotations

        return get_annotations(kind, format=Format.STRING)
    names: Iterable[str] = vars(kind).get("__annotations__", ())
    return names
