"""Locks over HTTP: the caller renews its lease by itself, and shows the id it got."""

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from onceward import keys, limits
from onceward.errors import BadInput, Unavailable
from onceward.ids import LENGTH
from onceward.locks import Request as LockRequest
from onceward.locks import Stand, admit_names, admit_owner
from onceward.locks.held import Terms
from onceward.locks.records import Head, name_slot
from onceward.observe.paging import page_of
from onceward.store.transaction import Transaction
from onceward.web.auth import Access
from onceward.web.bodies import parse
from onceward.web.cursors import seal, unseal
from onceward.web.http import Request, Response, whole
from onceward.web.routes import Route

if TYPE_CHECKING:
    from onceward.web.server import Server

LeaseMs = Annotated[int, Meta(ge=1, le=limits.LEASE_MS_MAX)]


class Acquire(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """All these names, or none."""

    names: list[str]
    owner: str = ""
    lease_ms: LeaseMs = limits.LOCK_LEASE_MS
    wait_ms: Annotated[int, Meta(ge=0, le=limits.WAIT_MS_MAX)] = 0
    """How long to stand in line; 0: not at all."""
    capacity: Annotated[int, Meta(ge=1, le=limits.LOCK_CAPACITY_MAX)] = 1
    """How many may hold a name at the same time."""
    request: str | None = None
    """26 letters and digits that the caller has made up. With the same, the request can be
    made again by who has not heard the answer, and is one request."""


class Acquired(msgspec.Struct):
    """What is held, until the lease runs out or is renewed."""

    id: str
    """To renew and to release it by."""
    token: int
    """The fencing token, of the first name if there are several."""
    tokens: dict[str, int]
    lease_until: int


class Renew(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A lease that is to last longer."""

    id: str
    lease_ms: LeaseMs | None = None


class Renewed(msgspec.Struct):
    lease_until: int


class Release(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A lock that is not needed any more."""

    id: str


class Released(msgspec.Struct):
    """Whether it was held, or waited for, until now; if not, it is released all the same."""

    released: bool


class Someone(msgspec.Struct):
    """A holder, or one who waits."""

    owner: str
    since_ms: int
    number: int
    """A holder's token, or a place in line."""


class LockView(msgspec.Struct):
    """A lock, with those who hold it and those who wait, in order."""

    name: str
    capacity: int
    token: int
    """The newest one granted."""
    held: int
    waiting: int
    holders: list[Someone]
    waiters: list[Someone]


class LockLine(msgspec.Struct):
    """A lock in a list."""

    name: str
    capacity: int
    token: int
    held: int
    waiting: int
    used_ms: int


class LockPage(msgspec.Struct):
    """Locks that were used lately, by name."""

    locks: list[LockLine]
    next: str | None
    """For the parameter after of the next request; None: there are no more."""


async def acquire(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    asked = parse(await request.body(), Acquire)
    for name in asked.names:
        _admit(name)
        caller.insist("lock", name)
    if len(set(asked.names)) < len(asked.names):
        raise BadInput("a lock is named twice in one request, and would wait for itself")
    capacities = dict.fromkeys(asked.names, asked.capacity)
    admit_names(capacities)
    owner = asked.owner or caller.user
    admit_owner(owner)
    terms = Terms(capacities, asked.lease_ms, asked.wait_ms / 1000, owner)
    locks, store = server.app.locks, server.app.store
    id_ = None
    if asked.request is not None:
        _admit_request(asked.request)
        # Apart by caller; and nobody can tell from what others make up how to release it.
        mark = store.server_keys.sign("lock", keys.join(caller.id, asked.request))
        id_ = f"{mark[:LENGTH]}{name_slot(min(capacities), locks.table.slots):03x}"
    acquiring = locks.acquire(terms, id_)
    lock = await (server.patiently(request, acquiring) if asked.wait_ms else acquiring)
    if lock is None:
        # Its place in line is kept for its lease, for who asks again with the same request.
        raise Unavailable("the server is stopping: ask again", code="node_stopped")
    until_ms = store.clock.now_ms() + int(lock.left_s * 1000)
    return Response.of(Acquired(lock.id, lock.tokens[asked.names[0]], lock.tokens, until_ms))


async def renew(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    asked = parse(await request.body(), Renew)
    table = server.app.locks.table

    async def fn(tx: Transaction) -> int:
        await tx.fetch(table.read_to_renew(asked.id))
        _insist(caller, await table.get(tx, asked.id))
        return await table.renew(tx, asked.id, asked.lease_ms)

    return Response.of(Renewed(await server.app.store.run(fn)))


async def release(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    asked = parse(await request.body(), Release)
    table = server.app.locks.table

    async def fn(tx: Transaction) -> bool:
        held = await table.get(tx, asked.id)
        if held is None:
            return False
        _insist(caller, held)
        await table.release(tx, asked.id)
        return True

    return Response.of(Released(await server.app.store.run(fn)))


async def status(server: "Server", request: Request) -> Response:
    name, caller = request.parameters["name"], server.caller(request)
    caller.insist("lock", name)
    found = await server.app.locks.status(name)
    if found is None:
        raise BadInput(f"the lock {name!r} was not used lately", code="no_such_lock", name=name)
    holders, waiters = _shown(found.holders), _shown(found.waiters)
    return Response.of(
        LockView(name, found.capacity, found.token, found.held, found.waiting, holders, waiters)
    )


async def find(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    query = request.query(["prefix", "after", "limit"])
    limit = whole("limit", query.get("limit", "100"), 1, limits.LIST_MAX)
    prefix, after = query.get("prefix", ""), unseal(server, request, "after", query.get("after"))
    if prefix:
        keys.admit_name(prefix, "a lock's name", limits.LOCK_NAME_BYTES_MAX)
    if not caller.grants.for_any("lock"):
        return Response.of(LockPage([], None))

    async def read(after: str, most: int) -> list[tuple[str, tuple[str, Head]]]:
        found = await server.app.locks.find(prefix=prefix, after=after, most=most)
        return [(name, (name, head)) for name, head in found]

    found, next_ = await page_of(
        server.app.store.clock,
        read,
        lambda lock: caller.may("lock", lock[0]),
        after=after,
        limit=limit,
    )
    lines = [
        LockLine(name, head.capacity, head.token, head.held, head.waiting, head.used_ms)
        for name, head in found
    ]
    return Response.of(LockPage(lines, seal(server, request, next_)))


def _shown(stands: list[Stand]) -> list[Someone]:
    """Without the ids, by which whoever knows them may release."""
    return [Someone(stand.owner, stand.since_ms, stand.number) for stand in stands]


def _insist(caller: Access, request: LockRequest | None) -> None:
    for name in [] if request is None else request.names:
        caller.insist("lock", name)


def _admit(name: str) -> None:
    if "\x00" in name:
        raise BadInput("a lock's name has no NUL in it", code="bad_name")


def _admit_request(made_up: str) -> None:
    if len(made_up) != LENGTH or not (made_up.isascii() and made_up.isalnum()):
        raise BadInput(f"request is {LENGTH} letters and digits, made up by the caller")


ROUTES = [
    Route(
        "POST",
        "/v1/locks/acquire",
        acquire,
        "Hold names, all or none",
        takes=Acquire,
        gives=Acquired,
        problems=("bad_name", "bad_key", "lock_held", "line_full", "lock_capacity", "lock_lost"),
    ),
    Route(
        "POST",
        "/v1/locks/renew",
        renew,
        "Renew a lease",
        takes=Renew,
        gives=Renewed,
        problems=("bad_key", "lock_lost"),
    ),
    Route(
        "POST",
        "/v1/locks/release",
        release,
        "Let go",
        takes=Release,
        gives=Released,
        problems=("bad_key",),
    ),
    Route(
        "GET",
        "/v1/locks",
        find,
        "Locks that were used lately",
        gives=LockPage,
        problems=("bad_name",),
        query=("prefix", "after", "limit"),
    ),
    Route(
        "GET",
        "/v1/locks/{name}",
        status,
        "Who holds a lock, and who waits",
        gives=LockView,
        problems=("no_such_lock", "bad_name"),
    ),
]
