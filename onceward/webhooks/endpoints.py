"""Endpoints: destinations of webhook calls and their signing secrets.

Secrets and header values are stored encrypted with the server key, each for its own place. An
endpoint whose secrets cannot be read, since that key is not here, is suspended: calls wait.

A secret that is replaced counts for a while beside the new one, so that receivers have time to
learn it. What is sent to a bare URL is signed with the secrets of the caller's endpoint
`default`, which has no URL of its own and is made when it is needed.
"""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from onceward import keys, limits
from onceward.api.retries import RetryPolicy
from onceward.errors import BadInput, NoSuchEndpoint, SecretUnreadable
from onceward.keys import Key
from onceward.schedule import is_whole
from onceward.store.transaction import Transaction
from onceward.webhooks import signing
from onceward.webhooks.http.headers import admit_headers
from onceward.webhooks.retries import admit_policy

DEFAULT = "default"
ENDPOINTS = "endpoint"
"""The partition of all of them."""


class Secret(msgspec.Struct, omit_defaults=True):
    """One that calls are signed with."""

    text: str
    until_ms: int | None = None
    """How long it counts, once there is a newer one."""


class Health(msgspec.Struct, omit_defaults=True):
    """How the last calls went; written when that changes."""

    failing: bool = False
    since_ms: int = 0
    said: str = ""
    """What the last one came to."""


class Endpoint(msgspec.Struct, omit_defaults=True):
    """A receiver of outward calls."""

    url: str
    secrets: list[Secret]
    """The newest one first."""
    created_ms: int
    headers: dict[str, str] = {}
    description: str = ""
    disabled: bool = False
    """While it is, what is due for it fails at once, and can be sent again later."""
    retry: RetryPolicy | None = None
    """For calls of timers that do not specify their own."""
    health: Health = msgspec.field(default_factory=Health)
    suspended: bool = False
    """Whether its secrets or headers cannot be read here; never stored."""

    def secrets_at(self, now_ms: int) -> list[str]:
        """The secrets that count at a time."""
        return [s.text for s in self.secrets if s.until_ms is None or s.until_ms > now_ms]


def endpoint_key(caller: str, id_: str) -> Key:
    """Where an endpoint stands. Raises `BadInput` for what cannot be an id."""
    keys.admit_name(id_, "an endpoint's id", limits.ENDPOINT_ID_BYTES_MAX)
    if type(caller) is not str:
        raise BadInput(f"a caller's id is text, not {type(caller).__name__}", code="bad_name")
    return ENDPOINTS, keys.join(caller, id_)


async def put(
    tx: Transaction,
    id_: str,
    url: str,
    secret: str,
    *,
    caller: str = "",
    headers: dict[str, str] | None = None,
    description: str = "",
    disabled: bool = False,
    retry: RetryPolicy | None = None,
) -> Endpoint:
    """Make an endpoint, or change one: its secrets stay. `secret` is that of a new one.

    Raises `BadInput`. Whether the URL may be called is judged with each call.
    """
    key = endpoint_key(caller, id_)
    signing.admit_secret(secret)
    if type(url) is not str or type(description) is not str:
        raise BadInput("the url of an endpoint and its description are text")
    if type(disabled) is not bool:
        raise BadInput(f"an endpoint is disabled or not, true or false, not {disabled!r}")
    admit_headers({} if headers is None else headers)
    if retry is not None:
        admit_policy(retry)
    if not url and id_ != DEFAULT:
        raise BadInput("an endpoint needs a url")
    known = await tx.get(key, Endpoint)
    endpoint = None if known is None else _decrypted(tx, caller, id_, known)
    if endpoint is None:
        endpoint = Endpoint(url, [Secret(secret)], tx.now_ms)
    elif endpoint.suspended:  # what could not be read is replaced by what is given
        endpoint.suspended, endpoint.secrets = False, [Secret(secret)]
    endpoint.url = url
    endpoint.headers = headers or {}
    endpoint.description = description[: limits.REASON_CHARS_MAX]
    endpoint.disabled = disabled
    endpoint.retry = retry
    tx.put(key, _encrypted(tx, caller, id_, endpoint))
    return endpoint


async def get(tx: Transaction, id_: str, *, caller: str = "") -> Endpoint:
    """An endpoint; raises `NoSuchEndpoint`."""
    endpoint = await tx.get(endpoint_key(caller, id_), Endpoint)
    if endpoint is None:
        raise NoSuchEndpoint(f"there is no endpoint {id_!r}", id=id_)
    return _decrypted(tx, caller, id_, endpoint)


async def rotate(
    tx: Transaction, id_: str, secret: str, *, overlap_ms: int, caller: str = ""
) -> Endpoint:
    """Sign with a new secret, and for `overlap_ms` with the one before, too. Raises
    `NoSuchEndpoint`, `BadInput`."""
    signing.admit_secret(secret)
    if not is_whole(overlap_ms) or not 0 <= overlap_ms <= limits.LEASE_MS_MAX:
        raise BadInput(f"an old secret counts 0 to {limits.LEASE_MS_MAX} ms, not {overlap_ms!r}")
    endpoint = await get(tx, id_, caller=caller)
    insist_readable(id_, endpoint)
    if secret != endpoint.secrets[0].text:  # the same again changes nothing
        newest = Secret(endpoint.secrets[0].text, tx.now_ms + overlap_ms)
        endpoint.secrets = [Secret(secret), newest]
        tx.put(endpoint_key(caller, id_), _encrypted(tx, caller, id_, endpoint))
    return endpoint


async def reencrypt(tx: Transaction, id_: str, *, caller: str = "") -> bool:
    """Encrypt what an endpoint has with the first server key. Returns False if it cannot be read.
    Idempotent."""
    key = endpoint_key(caller, id_)
    known = await tx.get(key, Endpoint)
    if known is None:
        return True
    texts = [*(secret.text for secret in known.secrets), *known.headers.values()]
    if not all(map(tx.server_keys.is_current, texts)):
        endpoint = _decrypted(tx, caller, id_, known)
        if endpoint.suspended:
            return False
        tx.put(key, _encrypted(tx, caller, id_, endpoint))
    return True


def insist_readable(id_: str, endpoint: Endpoint) -> None:
    """Raise `SecretUnreadable` for an endpoint that is suspended."""
    if endpoint.suspended:
        raise SecretUnreadable(
            f"the endpoint {id_!r} is suspended: its secrets are encrypted with a server key that "
            "this server does not have. Add that key to ONCEWARD_SERVER_KEY_FILE, or create "
            "the endpoint again (PUT, or DELETE and POST)",
            id=id_,
        )


def _encrypted(tx: Transaction, caller: str, id_: str, endpoint: Endpoint) -> Endpoint:
    """An endpoint as it is stored."""
    return _each(tx.server_keys.encrypt, caller, id_, endpoint)


def _decrypted(tx: Transaction, caller: str, id_: str, stored: Endpoint) -> Endpoint:
    """An endpoint as it is used; suspended, and without secrets, if it cannot be read."""
    try:
        return _each(tx.server_keys.decrypt, caller, id_, stored)
    except SecretUnreadable:
        return replace(stored, secrets=[], headers={}, suspended=True)


def _each(change: Callable[..., str], caller: str, id_: str, endpoint: Endpoint) -> Endpoint:
    place = (ENDPOINTS, caller, id_)
    return replace(
        endpoint,
        secrets=[replace(one, text=change(one.text, *place, "secret")) for one in endpoint.secrets],
        headers={
            name: change(value, *place, "header", name) for name, value in endpoint.headers.items()
        },
    )


async def remove(tx: Transaction, id_: str, *, caller: str = "") -> None:
    """Forget an endpoint. Raises `NoSuchEndpoint`."""
    await get(tx, id_, caller=caller)
    tx.delete(endpoint_key(caller, id_))


async def transfer(tx: Transaction, id_: str, *, caller: str, to: str) -> bool:
    """Give an endpoint to another caller, with its secrets. Returns False if the other has one
    with this id, or its secrets cannot be read. Idempotent."""
    known = await tx.get(endpoint_key(caller, id_), Endpoint)
    if known is None:
        return True
    endpoint = _decrypted(tx, caller, id_, known)
    if endpoint.suspended or await tx.get(endpoint_key(to, id_), Endpoint) is not None:
        return False
    tx.delete(endpoint_key(caller, id_))
    tx.put(endpoint_key(to, id_), _encrypted(tx, to, id_, endpoint))
    return True


async def all_of(
    tx: Transaction, *, caller: str = "", after: str = "", most: int
) -> list[tuple[str, Endpoint]]:
    """A caller's endpoints in the order of their ids, from behind `after` on."""
    start, end = keys.below(caller)
    if after:
        start = max(start, keys.after(keys.join(caller, after)))
    rows = await tx.scan(ENDPOINTS, Endpoint, start=start, end=end, limit=most, skip_damaged=True)
    ids = [(keys.split(row.key[1])[1], row.value) for row in rows]
    return [(id_, _decrypted(tx, caller, id_, stored)) for id_, stored in ids]


async def everyones(
    tx: Transaction, *, after: str = "", most: int
) -> list[tuple[str, str, Endpoint]]:
    """The endpoints of all callers, each with its caller and id, from behind a sort key on."""
    start = keys.after(after) if after else ""
    rows = await tx.scan(ENDPOINTS, Endpoint, start=start, limit=most, skip_damaged=True)
    found = [(*_names(row.key[1]), row.value) for row in rows]
    return [(caller, id_, _decrypted(tx, caller, id_, stored)) for caller, id_, stored in found]


def _names(sort: str) -> tuple[str, str]:
    caller, id_ = keys.split(sort)
    return caller, id_


async def note(tx: Transaction, id_: str, *, failing: bool, said: str, caller: str = "") -> None:
    """Write down that calls began to fail, or to succeed."""
    endpoint = await tx.get(endpoint_key(caller, id_), Endpoint)
    if endpoint is not None and endpoint.health.failing != failing:
        endpoint.health = Health(failing, tx.now_ms, said[:200])
        tx.put(endpoint_key(caller, id_), endpoint)
