"""Operations on API keys that are created while the server runs."""

from typing import Annotated

import msgspec
from msgspec import Meta

from onceward import limits
from onceward.api.operation import Body, Operation


class CreateKey(Body):
    """A key to create, for a caller, with its scopes."""

    name: Annotated[str, Meta(min_length=1, max_length=limits.CALLER_BYTES_MAX)]
    """The name of the caller."""
    scopes: Annotated[list[str], Meta(min_length=1, max_length=100)]
    """Scopes as in send:orders.* or all."""


class ApiKeySummary(msgspec.Struct):
    """A key without its secret."""

    id: str
    """The digest of the key."""
    name: str
    scopes: list[str]
    created_ms: int
    by: str


class CreatedKey(ApiKeySummary, kw_only=True):
    """A new key."""

    key: str
    """The key itself. It is shown once."""


class KeyList(msgspec.Struct):
    """The keys in the database, without those in the settings."""

    keys: list[ApiKeySummary]


class DeletedKey(msgspec.Struct):
    """A deleted key."""

    id: str


LIST = Operation(
    name="keys.list",
    method="GET",
    path="/v1/keys",
    summary="List API keys",
    scope="all",
    response=KeyList,
    returns="keys",
)

CREATE = Operation(
    name="keys.create",
    method="POST",
    path="/v1/keys",
    summary="Create an API key",
    scope="all",
    body=CreateKey,
    response=CreatedKey,
)

DELETE = Operation(
    name="keys.delete",
    method="DELETE",
    path="/v1/keys/{id}",
    summary="Delete an API key",
    description="With the last key of its name, its timers and endpoints are suspended.",
    scope="all",
    response=DeletedKey,
    errors=("no_such_key",),
    done_errors=("no_such_key",),
)
