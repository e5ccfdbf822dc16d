"""Binding of operations to their HTTP functions: checks scopes, reads requests, writes responses.

A function gets the call, the path parameters, and the body and query as the structs of its
operation. It returns a struct or a complete response.
"""

from collections.abc import Awaitable, Callable, Coroutine
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from onceward import limits
from onceward.api.operation import Operation
from onceward.app import App
from onceward.errors import BadInput
from onceward.parts import guards
from onceward.strict_json import decoder, parse_by
from onceward.web.auth import Access
from onceward.web.cursors import seal, unseal
from onceward.web.http import Request, Response, truth, whole
from onceward.web.routes import Handle, Route

if TYPE_CHECKING:
    from onceward.web.server import Server

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


class Call:
    """One call of an operation."""

    __slots__ = ("app", "caller", "raw", "request", "server")

    def __init__(self, server: "Server", request: Request, caller: Access) -> None:
        self.server = server
        self.app: App = server.app
        self.request = request
        self.caller = caller
        self.raw = b""
        """The body as sent."""

    async def patiently(
        self, work: Coroutine[Any, Any, T], undo: Callable[[T], object] = lambda result: None
    ) -> T | None:
        """Wait for a long operation; None if the client disconnects or the server stops first.
        `undo` gets a result for a client that has disconnected."""
        return await self.server.patiently(self.request, work, undo)

    def seal(self, position: str | None) -> str | None:
        """The cursor of the next page, from its position."""
        return seal(self.server, self.request, position)

    def unseal(self, name: str, cursor: str) -> str:
        """The position of a cursor in the parameter `name`. Raises `bad_parameter`."""
        return unseal(self.server, self.request, name, cursor)


class Binder(Protocol):
    """A decorator that binds a function to an operation.

    `check` gets the call, the path parameters and the query before the body is read; it raises
    `not_allowed`.
    """

    def __call__(
        self, operation: Operation[Any], *, check: Callable[..., Any] | None = None
    ) -> Callable[[F], F]: ...


def binder(routes: list[Route]) -> Binder:
    """A decorator that adds the routes of functions to a list."""

    def binds(
        operation: Operation[Any], *, check: Callable[..., Any] | None = None
    ) -> Callable[[F], F]:
        def bind(function: F) -> F:
            routes.append(Route.of(operation, _handle(operation, function, check)))
            return function

        return bind

    return binds


def _handle(
    operation: Operation[Any],
    function: Callable[..., Awaitable[Any]],
    check: Callable[..., Any] | None,
) -> Handle:
    body, optional = operation.body, operation.body_optional
    decode = decoder(body) if body is not None else None
    most_bytes = operation.body_bytes_max or limits.REQUEST_BYTES_MAX
    query = operation.query
    readers = _readers(query) if query is not None else {}
    enforced = operation.enforced
    reads = operation.method == "GET"

    async def handle(server: "Server", request: Request) -> Response:
        caller = server.caller(request)
        parameters = request.parameters
        if enforced is not None:
            _insist(server, caller, enforced[0], parameters.get(enforced[1], ""))
        elif decode is not None:
            caller.insist_any(operation)
        arguments: list[Any] = [*parameters.values()]
        if query is not None:
            arguments.append(_query(request.query(readers), readers, query))
        elif reads:
            request.query(())  # unexpected query parameters are rejected
        call = Call(server, request, caller)
        if check is not None:
            check(call, *arguments)
        if decode is not None:
            call.raw = raw = await request.body(most_bytes)
            arguments.append(body() if optional and not raw else parse_by(decode, raw))
        found = await function(call, *arguments)
        return found if type(found) is Response else Response.of(found)

    return handle


def _insist(server: "Server", caller: Access, action: Any, name: str) -> None:
    """Raise `not_allowed` for a caller without a scope, or one that the capability's guard
    rejects."""
    if action == "all":
        caller.insist_all()
    elif (guard := guards().get(action)) is not None:
        guard(server.app.node, caller, action, name)
    else:
        caller.insist(action, name)


Reader = Callable[[str, str], Any]


def _query(given: dict[str, str], readers: dict[str, Reader], type_: type[T]) -> T:
    """The query parameters of a request. Raises `bad_parameter`."""
    if not given:
        return type_()
    values = {name: readers[name](name, text) for name, text in given.items()}
    try:
        return msgspec.convert(values, type_)
    except msgspec.ValidationError as error:
        told, _, where = str(error).partition(" - at `$.")
        name = where.rstrip("`")
        known = _choices(get_type_hints(type_).get(name))
        told = f"use one of {', '.join(known)}" if known else told[:1].lower() + told[1:]
        raise BadInput(
            f"{name} is not valid: {told}, not {given.get(name, '')[:100]!a}",
            code="bad_parameter",
        ) from error


def _choices(hint: Any) -> list[str]:
    """The texts that a parameter can be, if they are a fixed set."""
    if get_origin(hint) is Literal:
        return [one for one in get_args(hint) if one]
    return [one for member in get_args(hint) for one in _choices(member)]


def _readers(query: Any) -> dict[str, Reader]:
    """The parser of each parameter: numbers and booleans have one spelling."""
    found: dict[str, Reader] = {}
    for field in msgspec.structs.fields(query):
        kinds = _kinds(field.type)
        found[field.name] = _number if int in kinds else truth if bool in kinds else _text
    return found


def _kinds(type_: Any) -> set[Any]:
    if get_origin(type_) is Annotated:
        return _kinds(get_args(type_)[0])
    if get_origin(type_) in (Union, UnionType):
        return set().union(*[_kinds(one) for one in get_args(type_)])
    return {type_}


def _number(name: str, text: str) -> int:
    return whole(name, text, 0, limits.KEY_NUMBER_MAX)


def _text(name: str, text: str) -> str:
    return text
