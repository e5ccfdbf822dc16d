"""Callers of one name are different callers: an API key, a user, and a user of another issuer."""

from typing import Any

import pytest

from onceward import tokens
from onceward.errors import OncewardError
from onceward.web.auth import ApiKey, Auth, JwtKey, digest_of
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, serving

SECRETS = {"": "s" * 32, "partner": "p" * 32}
SCOPES = "send:* timer:* endpoint:* lock:* write:*"
ISSUERS = {"": "https://id.example", "partner": "https://partner.example"}


def auth() -> Auth:
    key = ApiKey("billing", digest_of("ow_billing"), tuple(SCOPES.split()))
    issuers = [
        JwtKey("HS256", SECRETS[label], "onceward", issuer=ISSUERS[label], label=label)
        for label in SECRETS
    ]
    return Auth([key], issuers)


def user(server: Any, label: str) -> Caller:
    """Whoever has a token of an issuer for the name `billing`."""
    token = tokens.sign(
        SECRETS[label],
        user="billing",
        issuer=ISSUERS[label],
        clock=server.app.store.clock,
        send=["q"],
        endpoint=["shop"],
        timer=["daily"],
        lock=["a"],
        write=["r1", "r2", "r3"],
    )
    return Caller(server, token)


async def each_ones(act: Any) -> list[Any]:
    """What the key, the user and the partner's user of the name `billing` are answered."""
    async with serving(auth=auth()) as anyone:
        server = anyone.server
        callers = [Caller(server, "ow_billing"), user(server, ""), user(server, "partner")]
        return [await act(caller) for caller in callers]


@virtual
async def test_a_user_does_not_use_up_the_idempotency_keys_of_an_api_key() -> None:
    async def send(caller: Caller) -> Any:
        return await caller.ok("POST", "/v1/inbox/q", {"body": 1, "key": "k"})

    sent = await each_ones(send)
    assert len({one["id"] for one in sent}) == 3
    assert not any(one["duplicate"] for one in sent)


@virtual
async def test_a_user_does_not_read_the_webhook_secret_of_an_api_key() -> None:
    async with serving(auth=auth()) as anyone:
        key = Caller(anyone.server, "ow_billing")
        await key.ok("PUT", "/v1/endpoints/shop", {"url": "https://a.example/hook"})
        assert (await key.ok("GET", "/v1/endpoints/shop?secret=true"))["secrets"]
        for label in SECRETS:
            other = user(anyone.server, label)
            answer = await other("GET", "/v1/endpoints/shop?secret=true")
            assert answer.verdict == (404, "no_such_endpoint")
            assert (await other.ok("GET", "/v1/endpoints"))["endpoints"] == []


@virtual
async def test_timers_of_one_id_are_each_ones_own() -> None:
    async def put(caller: Caller) -> Any:
        body = {"id": "daily", "queue": "q", "delay_ms": 60_000}
        assert (await caller("GET", "/v1/timers/daily")).status == 404
        await caller.ok("POST", "/v1/timers", body)
        return await caller.ok("DELETE", "/v1/timers/daily")

    assert [one["state"] for one in await each_ones(put)] == ["cancelled"] * 3


@virtual
async def test_the_same_request_for_a_lock_is_another_one_for_each() -> None:
    async def acquire(caller: Caller) -> Any:
        asked = {"names": ["a"], "request": "0123456789ABCDEFGHJKMNPQRS", "capacity": 3}
        return await caller.ok("POST", "/v1/locks/acquire", asked)

    held = await each_ones(acquire)
    assert len({one["id"] for one in held}) == 3


@virtual
async def test_each_takes_part_in_rooms_under_a_name_of_its_own() -> None:
    async def create(caller: Caller) -> Any:
        room = "r1" if (await caller("POST", "/v1/rooms", {"id": "r1"})).status < 300 else ""
        for other in ("r2", "r3"):
            if not room and (await caller("POST", "/v1/rooms", {"id": other})).status < 300:
                room = other
        return (await caller.ok("GET", f"/v1/rooms/{room}"))["by"]

    made = await each_ones(create)
    assert made == ["key:billing", "billing", "user@partner:billing"]


def test_two_issuers_need_different_labels() -> None:
    one = JwtKey("HS256", "s" * 32, "onceward", issuer="https://id.example")
    other = JwtKey("HS256", "p" * 32, "onceward", issuer="https://partner.example")
    rotated = JwtKey("HS256", "r" * 32, "onceward", issuer="https://id.example")
    Auth(jwt_keys=[one, rotated])
    with pytest.raises(OncewardError, match="have the same label '';") as refused:
        Auth(jwt_keys=[one, other])
    assert refused.value.code == "bad_settings"
    bad = JwtKey("HS256", "s" * 32, "onceward", label="A B")
    with pytest.raises(OncewardError, match="the label of an issuer") as refused:
        Auth(jwt_keys=[bad])
    assert refused.value.code == "bad_settings"
