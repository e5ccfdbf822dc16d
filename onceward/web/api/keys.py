"""API keys that are made while the server runs. Only who may do everything makes them."""

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from onceward import limits
from onceward.callers import Caller
from onceward.errors import BadInput
from onceward.web.bodies import parse
from onceward.web.http import Request, Response
from onceward.web.routes import Route

if TYPE_CHECKING:
    from onceward.web.server import Server


class NewKey(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A key to be made, for a caller, with what it may do."""

    name: Annotated[str, Meta(min_length=1, max_length=limits.CALLER_BYTES_MAX)]
    scopes: Annotated[list[str], Meta(min_length=1, max_length=100)]


class KeyView(msgspec.Struct):
    """A key, without the key."""

    id: str
    """Its digest."""
    name: str
    scopes: list[str]
    made_ms: int
    by: str


class KeyMade(KeyView, kw_only=True):
    """A new key."""

    key: str
    """It is told this once."""


class KeyList(msgspec.Struct):
    """The keys in the database; those in the settings are not among them."""

    keys: list[KeyView]


class KeyRemoved(msgspec.Struct):
    """A key that counts no more."""

    id: str


class SettingView(msgspec.Struct):
    """A setting, and where it comes from."""

    name: str
    value: str
    source: str
    meaning: str


class SettingList(msgspec.Struct):
    """The settings of this server, without their secrets."""

    settings: list[SettingView]


async def list_(server: "Server", request: Request) -> Response:
    server.caller(request).insist_all()
    await server.keyring.load()
    found = sorted(server.keyring.keys.items(), key=lambda item: item[1].made_ms)
    return Response.of(
        KeyList([KeyView(id_, k.name, list(k.scopes), k.made_ms, k.by) for id_, k in found])
    )


async def make(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    caller.insist_all()
    asked = parse(await request.body(), NewKey)
    key, id_ = await server.keyring.make(asked.name, tuple(asked.scopes), caller.id)
    stored = server.keyring.keys[id_]
    await server.app.timers.resume(Caller("key", "", asked.name).id)
    view = KeyMade(id_, stored.name, list(stored.scopes), stored.made_ms, stored.by, key=key)
    return Response.of(view)


async def remove(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    caller.insist_all()
    id_ = request.parameters["id"]
    removed = len(id_) == 64 and await server.keyring.remove(id_, caller.id, server.auth.ids())
    if not removed:
        raise BadInput("there is no such key", code="no_such_key")
    return Response.of(KeyRemoved(id_))


async def settings(server: "Server", request: Request) -> Response:
    server.caller(request).insist_all()
    return Response.of(
        SettingList([SettingView(s.name, s.shown, s.source, s.meaning) for s in server.settings])
    )


ROUTES = [
    Route("GET", "/v1/keys", list_, "API keys that were made here", gives=KeyList),
    Route(
        "POST",
        "/v1/keys",
        make,
        "Make an API key",
        takes=NewKey,
        gives=KeyMade,
    ),
    Route(
        "DELETE",
        "/v1/keys/{id}",
        remove,
        "Remove an API key. With the last key of its name, its timers and endpoints are suspended",
        gives=KeyRemoved,
        problems=("no_such_key",),
    ),
    Route("GET", "/v1/settings", settings, "The settings of this server", gives=SettingList),
]
