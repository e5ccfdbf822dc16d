"""The routing table: method and path to function.

A path is split before it is decoded, so that names can contain a slash (as %2F). The OpenAPI
document is generated from the same table.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from onceward import limits
from onceward.api.operation import Operation
from onceward.errors import BadInput
from onceward.web.http import Request, Response, Scope

Handle = Callable[[Any, Request], Awaitable[Response]]


class Route(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    """The path with parameters in braces: /v1/jobs/{id}."""
    handle: Handle
    """Gets the server and the request."""
    summary: str
    takes: Any = None
    """The struct of its body."""
    gives: Any = None
    """The struct of its response."""
    statuses: tuple[int, ...] = (200,)
    """The statuses of successful responses."""
    problems: tuple[str, ...] = ()
    """The codes of its specific problems."""
    query: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    public: bool = False
    """Whether it needs no credentials."""
    signs_in: bool = False
    """Whether its body has the credentials."""
    operation: Operation[Any] | None = None

    @classmethod
    def of(cls, operation: Operation[Any], handle: Handle) -> "Route":
        """The route of an operation."""
        return cls(
            operation.method,
            operation.path,
            handle,
            operation.summary,
            takes=operation.body,
            forms=operation.form,
            gives=operation.response,
            statuses=operation.statuses,
            problems=operation.errors,
            query=operation.query.__struct_fields__ if operation.query is not None else (),
            headers=operation.headers,
            public=operation.public,
            signs_in=operation.signs_in,
            operation=operation,
        )

    forms: bool = False
    """Whether its body may also be a form with the members of `takes`."""


class _Node:
    """A node in the tree of paths."""

    def __init__(self) -> None:
        self.words: dict[str, _Node] = {}
        self.any: _Node | None = None
        self.routes: dict[str, Route] = {}


class Routes:
    """Finds the route of a request."""

    def __init__(self, routes: list[Route]) -> None:
        self._root = _Node()
        self._routes = routes
        self._names: dict[str, list[str]] = {}
        for route in routes:
            node = self._root
            for word in route.path.split("/")[1:]:
                if word.startswith("{"):
                    node.any = node.any or _Node()
                    node = node.any
                else:
                    node = node.words.setdefault(word, _Node())
            self._names[route.path] = _names(route.path)
            assert route.method not in node.routes, route
            node.routes[route.method] = route
        # Most paths are requested repeatedly. Cached results are never modified.
        self._known = lru_cache(limits.ROUTES_KNOWN)(self._look_up)

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def find(self, request: Request) -> Route:
        """Find the route of a request, and set its parameters.

        Raises `BadInput` for an unknown path, another method, or a parameter that is not text.
        """
        raw, root = raw_path(request.scope), request.scope.get("root_path", "")
        look_up = self._known if len(raw) <= limits.ROUTE_KNOWN_BYTES else self._look_up
        route, request.parameters = look_up(request.method, raw, root)
        request.route = route.path
        return route

    def _look_up(self, method: str, raw: bytes, root: str) -> tuple[Route, dict[str, str]]:
        node = before = self._root
        values: list[str] = []
        text = ""
        for text in _words(raw, root):
            after = node.words.get(text)
            if after is None and text:
                after = node.any
                values.append(text)
            if after is None:
                raise _nothing_at(raw)
            before, node = node, after
        asked, method = method, "GET" if method == "HEAD" else method
        route = node.routes.get(method)
        if route is None and text and before.any is not None and node is not before.any:
            # A name can equal a literal word: a lock may be called "renew".
            route = before.any.routes.get(method)
            values.append(text)
        if route is None:
            if not node.routes:
                raise _nothing_at(raw)
            allowed = ", ".join(sorted({*node.routes, *(["HEAD"] if "GET" in node.routes else [])}))
            raise BadInput(
                f"this path does not support {asked[:20]}; use {allowed}",
                code="method_not_allowed",
                allow=allowed,
            )
        return route, dict(zip(self._names[route.path], values, strict=True))


def _names(path: str) -> list[str]:
    """The names of the parameters in a path pattern."""
    return [word[1:-1] for word in path.split("/") if word.startswith("{")]


def words_of(scope: Scope) -> list[str]:
    """The parts of a path below the mount point of the server. Raises `BadInput`."""
    return _words(raw_path(scope), scope.get("root_path", ""))


def raw_path(scope: Scope) -> bytes:
    """The path of a request as sent."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"], errors="surrogatepass").encode()
    return raw


def _nothing_at(raw: bytes) -> BadInput:
    path = raw[:100].decode("ascii", "replace")
    return BadInput(f"there is nothing at the path {path!a}; check the URL", code="not_found")


def _words(raw: bytes, root: str) -> list[str]:
    raw = raw.partition(b"?")[0]
    if b"%" in raw:
        words = [_decode(word) for word in raw.split(b"/")[1:]]
    else:
        words = _decode(raw).split("/")[1:]
    root = root.strip("/")
    if root:
        mounted = root.split("/")
        if words[: len(mounted)] == mounted:
            return words[len(mounted) :]
    return words


def _decode(word: bytes) -> str:
    try:
        text = unquote_to_bytes(word).decode() if b"%" in word else word.decode()
    except UnicodeDecodeError as error:
        raise BadInput(
            f"the path is not UTF-8: {error}; percent-encode it as UTF-8", code="not_text"
        ) from error
    if "\x00" in text:
        raise BadInput(f"the path {text[:100]!a} contains NUL; remove it", code="bad_name")
    return text
