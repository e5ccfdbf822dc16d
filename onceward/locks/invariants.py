"""Invariants of lock records, for `onceward db check` and tests."""

from collections.abc import Iterator
from typing import TypeVar

from onceward import keys
from onceward.engine.base import Record
from onceward.engine.invariants import Lookup, Rule, value_of
from onceward.errors import OncewardError
from onceward.locks.records import (
    HELD,
    LOCK_DUE,
    WAITING,
    Head,
    Renewed,
    Request,
    Stand,
    renewed_key,
    request_key,
)
from onceward.locks.waiters import lease_entry

T = TypeVar("T")


def _lock(record: Record, get: Lookup) -> Iterator[str]:
    name, what, *number = keys.split(record.key[1])
    if what == "head":
        head = value_of(record, Head)
        if head is None or not 0 <= head.held <= head.capacity or head.waiting < 0:
            yield "this is not the head of a lock"
        return
    stand = value_of(record, Stand)
    request = None if stand is None else _request(stand.id, get)
    if stand is None or request is None:
        yield "its request is missing"
        return
    numbers = request.tokens if what == "hold" else request.places
    if numbers.get(name) != stand.number or number != [keys.number(stand.number)]:
        yield f"the request {stand.id} does not match: it is {request.state}"
    if get((record.key[0], keys.join(name, "head"))) is None:
        yield f"the lock {name!r} has no head"


def _ask(record: Record, get: Lookup) -> Iterator[str]:
    if record.key[1] != "request":
        if value_of(record, Renewed) is None:
            yield "this is not a lease of a request for locks"
        return
    request = value_of(record, Request)
    if request is None or bool(request.tokens) != (request.state == HELD):
        yield "this is not a request for locks"
        return
    if bool(request.places) != (request.state == WAITING):
        yield f"the request is {request.state} but has queue numbers: {request.places}"
    renewed = get(renewed_key(request.id)) is not None
    if get(lease_entry(request, request.until_ms)) is None and not renewed:
        yield "the request has a lease that never ends"


def _token(record: Record, get: Lookup) -> Iterator[str]:
    token = value_of(record, int)
    if token is None or token < 0:
        yield "this is not a fencing token"


def _due(record: Record, get: Lookup) -> Iterator[str]:
    words = record.key[1].split("#")
    if words[-1] == LOCK_DUE and len(words) != 4:
        yield "this is not a lease of a lock"


def _request(id_: str, get: Lookup) -> Request | None:
    try:
        record = get(request_key(id_))
    except OncewardError:
        return None
    return value_of(record, Request)


RULES = [
    Rule("lock", _lock),
    Rule("ask", _ask),
    Rule("fence", _token),
    Rule("gate", _token),
    Rule("due", _due),
]
