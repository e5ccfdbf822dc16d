"""Endpoints: where outward calls go, and the secrets they are signed with.

A secret that is replaced counts for a while beside the new one, so that receivers have time to
learn it. What is sent to a bare URL is signed with the secrets of the caller's endpoint
`default`, which has no URL of its own and is made when it is needed.
"""

import msgspec

from onceward import keys, limits
from onceward.errors import BadInput, NoSuchEndpoint
from onceward.keys import Key
from onceward.outward import signing
from onceward.outward.headers import admit_headers
from onceward.parts.schedule import is_whole
from onceward.transaction import Transaction

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
    made_ms: int
    headers: dict[str, str] = {}
    description: str = ""
    disabled: bool = False
    """While it is, what is due for it fails at once, and can be sent again later."""
    health: Health = msgspec.field(default_factory=Health)

    def secrets_at(self, now_ms: int) -> list[str]:
        """The secrets that count at a time."""
        return [s.text for s in self.secrets if s.until_ms is None or s.until_ms > now_ms]


def endpoint_key(caller: str, id_: str) -> Key:
    """Where an endpoint stands. Raises `BadInput` for what cannot be an id."""
    if type(caller) is not str or type(id_) is not str:
        raise BadInput("an endpoint's id and its caller are text", code="bad_name")
    if not 0 < len(id_) <= limits.QUEUE_CHARS_MAX:
        raise BadInput(
            f"an endpoint's id has 1 to {limits.QUEUE_CHARS_MAX} characters, not {len(id_)}",
            code="bad_name",
        )
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
    if not url and id_ != DEFAULT:
        raise BadInput("an endpoint needs a url")
    endpoint = await tx.get(key, Endpoint)
    if endpoint is None:
        endpoint = Endpoint(url, [Secret(secret)], tx.now_ms)
    endpoint.url = url
    endpoint.headers = headers or {}
    endpoint.description = description[: limits.REASON_CHARS_MAX]
    endpoint.disabled = disabled
    tx.put(key, endpoint)
    return endpoint


async def get(tx: Transaction, id_: str, *, caller: str = "") -> Endpoint:
    """An endpoint; raises `NoSuchEndpoint`."""
    endpoint = await tx.get(endpoint_key(caller, id_), Endpoint)
    if endpoint is None:
        raise NoSuchEndpoint(f"there is no endpoint {id_!r}", id=id_)
    return endpoint


async def rotate(
    tx: Transaction, id_: str, secret: str, *, overlap_ms: int, caller: str = ""
) -> Endpoint:
    """Sign with a new secret, and for `overlap_ms` with the one before, too. Raises
    `NoSuchEndpoint`, `BadInput`."""
    signing.admit_secret(secret)
    if not is_whole(overlap_ms) or not 0 <= overlap_ms <= limits.LEASE_MS_MAX:
        raise BadInput(f"an old secret counts 0 to {limits.LEASE_MS_MAX} ms, not {overlap_ms!r}")
    endpoint = await get(tx, id_, caller=caller)
    if secret != endpoint.secrets[0].text:  # the same again changes nothing
        newest = Secret(endpoint.secrets[0].text, tx.now_ms + overlap_ms)
        endpoint.secrets = [Secret(secret), newest]
        tx.put(endpoint_key(caller, id_), endpoint)
    return endpoint


async def remove(tx: Transaction, id_: str, *, caller: str = "") -> None:
    """Forget an endpoint. Raises `NoSuchEndpoint`."""
    await get(tx, id_, caller=caller)
    tx.delete(endpoint_key(caller, id_))


async def all_of(
    tx: Transaction, *, caller: str = "", after: str = "", most: int
) -> list[tuple[str, Endpoint]]:
    """A caller's endpoints in the order of their ids, from behind `after` on."""
    start, end = keys.below(caller)
    if after:
        start = max(start, keys.after(keys.join(caller, after)))
    rows = await tx.scan(ENDPOINTS, Endpoint, start=start, end=end, limit=most)
    return [(keys.split(row.key[1])[1], row.value) for row in rows]


async def everyones(
    tx: Transaction, *, after: str = "", most: int
) -> list[tuple[str, str, Endpoint]]:
    """The endpoints of all callers, each with its caller and id, from behind a sort key on."""
    rows = await tx.scan(ENDPOINTS, Endpoint, start=keys.after(after) if after else "", limit=most)
    return [(*_names(row.key[1]), row.value) for row in rows]


def _names(sort: str) -> tuple[str, str]:
    caller, id_ = keys.split(sort)
    return caller, id_


async def note(tx: Transaction, id_: str, *, failing: bool, said: str, caller: str = "") -> None:
    """Write down that calls began to fail, or to succeed."""
    endpoint = await tx.get(endpoint_key(caller, id_), Endpoint)
    if endpoint is not None and endpoint.health.failing != failing:
        endpoint.health = Health(failing, tx.now_ms, said[:200])
        tx.put(endpoint_key(caller, id_), endpoint)
