"""What is refused, at every way in, and what it says."""

import pytest

from onceward import limits
from onceward.errors import BadInput, LockLost
from onceward.locks import admit_names
from tests.locks.locking import new_locking

LONG = "x" * (limits.LOCK_NAME_BYTES_MAX + 1)
BAD_NAMES = [
    ({}, "a request must have 1 to 16 names, not 0"),
    ({str(n): 1 for n in range(17)}, "a request must have 1 to 16 names, not 17"),
    ({"": 1}, "a lock's name must have 1 to 256 bytes, not 0"),
    ({LONG: 1}, "a lock's name must have 1 to 256 bytes, not 257"),
    ({"é" * 129: 1}, "not 258"),
    ({"a\ud800": 1}, "lone surrogates"),
    ({7: 1}, "a lock's name must be text, not int"),
    ({"a": 0}, "the capacity of 'a' must be 1 to 10000, not 0"),
    ({"a": limits.LOCK_CAPACITY_MAX + 1}, "not 10001"),
    ({"a": True}, "not True"),
    ({"a": 1.5}, "not 1.5"),
    ({"a": None}, "not None"),
    (["a"], "a mapping of names to capacities"),
    ("a", "a mapping of names to capacities"),
]


@pytest.mark.parametrize(("names", "message"), BAD_NAMES)
@pytest.mark.parametrize("way", ["acquire", "join"])
async def test_bad_names_and_capacities_are_refused(way, names, message) -> None:
    locking = await new_locking()
    with pytest.raises(BadInput, match=message):
        admit_names(names)
    with pytest.raises(BadInput, match=message):
        await locking.run(lambda tx: getattr(locking.table, way)(tx, names))
    assert locking.engine.commits == []


@pytest.mark.parametrize("lease_ms", [0, -1, limits.LEASE_MS_MAX + 1, 1.5, "1", None, True])
async def test_a_bad_lease_is_refused(lease_ms) -> None:
    locking = await new_locking()
    with pytest.raises(BadInput, match="a lease must have 1 to"):
        await locking.acquire("a", lease_ms=lease_ms)
    if lease_ms is not None:
        request = await locking.held("a")
        with pytest.raises(BadInput, match="a lease must have 1 to"):
            await locking.renew(request, lease_ms)


@pytest.mark.parametrize("owner", ["x" * 257, None, 5, b"me"])
async def test_a_bad_owner_is_refused(owner) -> None:
    locking = await new_locking()
    with pytest.raises(BadInput, match="an owner's name must be text of at most 256 characters"):
        await locking.join("a", owner=owner)


async def test_an_owner_that_json_cannot_say_is_refused() -> None:
    locking = await new_locking()
    with pytest.raises(BadInput, match="cannot be stored"):
        await locking.join("a", owner="\ud800")


@pytest.mark.parametrize("id_", ["", "x", "x" * 29, "0" * 26 + "é00", 5, None, "0" * 1_000])
async def test_what_is_no_id_is_refused(id_) -> None:
    locking = await new_locking()
    table = locking.table
    for call in (table.get, table.renew, table.release, table.withdraw):
        with pytest.raises(BadInput, match="is not the id of a request for locks"):
            await locking.run(lambda tx, call=call: call(tx, id_))
    if id_ is not None:
        with pytest.raises(BadInput, match="is not the id"):
            await locking.join("a", id_=id_)


async def test_an_id_made_for_other_names_is_refused() -> None:
    locking = await new_locking(slots=64)
    with pytest.raises(BadInput, match="belongs to other names"):
        await locking.join("b", id_=locking.table.new_id(["a"]))


async def test_an_id_that_never_was_is_over() -> None:
    locking = await new_locking()
    id_ = locking.table.new_id(["a"])
    with pytest.raises(LockLost):
        await locking.run(lambda tx: locking.table.release(tx, id_))
    assert await locking.run(lambda tx: locking.table.get(tx, id_)) is None
    assert await locking.run(lambda tx: locking.table.withdraw(tx, id_)) is None


@pytest.mark.parametrize("token", [0, -1, 10**16, 1.0, "1", None, True])
async def test_what_is_no_token_is_refused(token) -> None:
    locking = await new_locking()
    for call in (locking.guard, locking.gate):
        with pytest.raises(BadInput, match="a token must be a positive integer"):
            await call("a", token)


@pytest.mark.parametrize("name", ["", LONG, 5, None, "\ud800", "\x00"])
async def test_a_bad_name_is_refused_also_by_those_who_only_look(name) -> None:
    locking = await new_locking()
    with pytest.raises(BadInput, match="a lock's name"):
        await locking.guard(name, 1)
    with pytest.raises(BadInput, match="a lock's name"):
        await locking.status(name)
    with pytest.raises(BadInput, match="a resource's name"):
        await locking.gate(name, 1)


async def test_any_text_can_be_a_name() -> None:
    locking = await new_locking(slots=8)
    names = ["#", "a#head", "a", "$", "ein Name", "名前", "\U0001f512" * 64]
    request = await locking.held(*names)
    waiter = await locking.waits("#")
    for name, token in request.tokens.items():
        await locking.guard(name, token)
        assert len((await locking.status(name)).holders) == 1
    await locking.pass_ms(limits.LOCK_LEASE_MS)
    assert await locking.state(waiter) is None
    await locking.pass_ms(limits.LOCK_UNUSED_MS)
    assert await locking.due() == []
