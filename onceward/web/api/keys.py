"""HTTP functions for API keys that are created while the server runs."""

from onceward.api import keys as api
from onceward.callers import Caller
from onceward.errors import BadInput
from onceward.web.calls import Call, binder
from onceward.web.routes import Route

ROUTES: list[Route] = []
answers = binder(ROUTES)


@answers(api.LIST)
async def list_(call: Call) -> api.KeyList:
    keyring = call.server.keyring
    await keyring.load()
    found = sorted(keyring.keys.items(), key=lambda item: item[1].created_ms)
    return api.KeyList(
        [api.ApiKeySummary(id_, k.name, list(k.scopes), k.created_ms, k.by) for id_, k in found]
    )


@answers(api.CREATE)
async def create(call: Call, asked: api.CreateKey) -> api.CreatedKey:
    keyring = call.server.keyring
    key, id_ = await keyring.make(asked.name, tuple(asked.scopes), call.caller.id)
    stored = keyring.keys[id_]
    await call.app.timers.resume_caller(Caller("key", "", asked.name).id)
    return api.CreatedKey(
        id_, stored.name, list(stored.scopes), stored.created_ms, stored.by, key=key
    )


@answers(api.DELETE)
async def delete(call: Call, id_: str) -> api.DeletedKey:
    keyring, kept = call.server.keyring, call.server.auth.ids()
    if len(id_) != 64 or not await keyring.remove(id_, call.caller.id, kept):
        raise BadInput(f"API key {id_[:100]!r} not found; check its id", code="no_such_key")
    return api.DeletedKey(id_)
