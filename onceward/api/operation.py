"""The `Operation` struct: method, path, scopes, request and response of one API operation.

An operation is declared once. The server binds it to a function; routes, the OpenAPI document,
clients, commands and the tests of scopes are made from the declaration.
"""

import re
import types
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from onceward.capabilities import SCOPES


class Body(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The base of request bodies."""


class Query(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The base of query parameters.

    No parameter is optional by `None`: the text "null" would be read as `None`. Use a default.
    """


Ignored = Annotated[Any, Meta(extra={"ignored": True})]
"""A member of a request that has no effect. Clients do not offer it."""
NotForClients = Annotated[bool, Meta(extra={"ignored": True})]
"""A setting that only code of the application can change. Clients do not offer it."""
JsonText = Annotated[str, Meta(extra={"json": True})]
"""A query parameter that is JSON. Clients take the value, commands the text."""

R = TypeVar("R")


class Operation(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """One operation: one method of one path."""

    name: str
    """A noun and a verb: jobs.retry."""
    method: str
    path: str
    """With parameters in braces: /v1/jobs/{id}."""
    summary: str
    """An imperative of at most 60 characters."""
    description: str = ""
    scope: str = ""
    """The scope that a caller needs. The server checks `all`, `operate:*` (all names) and
    `manage:{queue}` (a parameter of the path) before the function runs. With alternatives (` | `)
    or other names, the function checks it; a caller without any of its actions is rejected before
    the body is read. Empty: any caller with credentials."""
    body: Any = None
    """The struct of the request body."""
    body_optional: bool = False
    """Whether an empty body means the defaults."""
    partial: bool = False
    """Whether members of the body that are not given stay as they are, so that clients send only
    those that are given."""
    body_bytes_max: int = 0
    """0: the limit of all requests."""
    form: bool = False
    """Whether the body can be a form."""
    query: Any = None
    """The struct of the query parameters."""
    headers: tuple[str, ...] = ()
    response: type[R] | None = None
    """The struct of the response body. Clients accept the responses of newer servers: no struct in
    it rejects unknown members, and no member has a fixed set of values (`Literal`). A request that
    shares a struct with it has a strict subclass (`RetryPolicy` of `RetryPolicyView`)."""
    media_type: str = ""
    """The media type of a response that is not JSON."""
    statuses: tuple[int, ...] = (200,)
    """Of responses that are not problems."""
    errors: tuple[str, ...] = ()
    """The codes of its own problems, beside those of all operations."""
    returns: str = ""
    """The member of the response that clients return, if the others add nothing."""
    fills: tuple[str, ...] = ()
    """The members of the body, or the header Idempotency-Key, that clients fill with a new id if
    they are not given. So a client can repeat the request after a lost response."""
    done_errors: tuple[str, ...] = ()
    """The errors that mean success if the response to an earlier request was lost.

    Clients then call `get` of the same noun and return its members of the response. For a DELETE
    they return the id.
    """
    done_member: str = ""
    """The member of the response that is true if this request made the change.

    After a lost response, an earlier request may have made it, so clients set the member to true.
    """
    unknown_errors: tuple[str, ...] = ()
    """The errors that mean, after a lost response, that the outcome is unknown."""
    repeats_with: str = ""
    """The member of the body that makes a repeated request safe. Without it, clients do not repeat
    a request whose response was lost: the outcome is unknown."""
    waits: bool = False
    """Whether it can wait on the server, for `wait_ms`."""
    kind: Literal["call", "stream", "page"] = "call"
    """`call`: a request with JSON and a response with JSON. `stream`: a WebSocket or a long body.
    `page`: for browsers and monitoring. Clients and commands are made from calls."""
    public: bool = False
    """Whether it is answered without credentials."""
    signs_in: bool = False
    """Whether its body has the credentials."""

    def __post_init__(self) -> None:
        if self.query is not None:
            for name, type_ in get_type_hints(self.query, include_extras=False).items():
                assert not _can_be_none(type_), f"{self.name}: {name} can be None"

    @property
    def noun(self) -> str:
        return self.name.partition(".")[0]

    @property
    def verb(self) -> str:
        return self.name.partition(".")[2]

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters in the path."""
        return [word[1:-1] for word in self.path.split("/") if word.startswith("{")]

    @property
    def enforced(self) -> tuple[str, str] | None:
        """The action that the server checks before the function runs, and the path parameter with
        its name.

        Without a parameter, it is checked for all names.
        """
        action, _, name = self.scope.partition(":")
        if self.scope == "all" or name == "*":
            return action, ""
        if " | " in self.scope or not name.startswith("{") or name[1:-1] not in self.parameters:
            return None
        return action, name[1:-1]

    @property
    def actions(self) -> frozenset[str]:
        """The actions of which a caller needs one; empty if the scope is not a list of actions."""
        needed = {re.split("[: ]", one)[0] for one in self.scope.split(" | ")}
        if not needed <= SCOPES.keys():
            return frozenset()
        return frozenset(needed.union(*[SCOPES[one].included_in for one in needed]))


def _can_be_none(type_: Any) -> bool:
    return get_origin(type_) in (Union, types.UnionType) and types.NoneType in get_args(type_)
