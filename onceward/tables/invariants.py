"""Invariants of table records, for `onceward db check` and tests."""

from collections.abc import Iterator
from typing import TypeVar

from onceward import keys
from onceward.api.tables import Rating
from onceward.engine.base import Record
from onceward.engine.invariants import Lookup, Rule, value_of
from onceward.tables.records import (
    TABLES,
    Head,
    Info,
    Stand,
    Wait,
    head_key,
    info_key,
    ladder_key,
    listed_key,
    rating_key,
    stand_key,
    wait_key,
)

T = TypeVar("T")


def _table(record: Record, get: Lookup) -> Iterator[str]:
    id_ = keys.split(record.key[0])[1]
    if record.key[1] != "head":
        if value_of(record, Info) is None:
            yield "not the settings of a table"
        elif get(head_key(id_)) is None:
            yield "the table has no head"
        elif record.expires_at_ms is None and get(listed_key(id_)) is None:
            yield "the table is missing in the list of tables"
        return
    head, info = value_of(record, Head), value_of(get(info_key(id_)), Info)
    if head is None or info is None or info.epoch != head.epoch:
        yield "not the head of a table"
        return
    if not head.seats.keys() <= {*info.policy.seats}:
        yield f"more seats are taken than the table has: {', '.join(head.seats)}"
    users = [seat.user for seat in head.seats.values()]
    if len(set(users)) < len(users):
        yield f"a user has two seats: {', '.join(users)}"
    for marker, seat in head.seats.items():
        stand = value_of(get(stand_key(id_, head.epoch, seat.user)), Stand)
        if not seat.bot and (stand is None or stand.role != "seated"):
            yield f"{seat.user!r} sits at {marker} but has no record of it"
    for key, lane in head.lanes.items():
        if (
            lane.front is not None
            and get(wait_key(id_, head.epoch, key, lane.front.number)) is None
        ):
            yield f"the first entry of lane {key!r} is not a waiter"


def _listed(record: Record, get: Lookup) -> Iterator[str]:
    [id_] = keys.split(record.key[1])
    info = value_of(get(info_key(id_)), Info)
    if record.expires_at_ms is None and (info is None or info.epoch != value_of(record, str)):
        yield f"table {id_!r} does not exist in this epoch"


def _rating(record: Record, get: Lookup) -> Iterator[str]:
    _, ladder = keys.split(record.key[0])
    [user] = keys.split(record.key[1])
    rating = value_of(record, Rating)
    if rating is None:
        yield "not a rating"
    elif get(ladder_key(ladder, rating.rating, user)) is None:
        yield f"{user!r} is missing in the ladder {ladder!r} with {rating.rating}"


def _ladder(record: Record, get: Lookup) -> Iterator[str]:
    _, ladder = keys.split(record.key[0])
    _, user = keys.split(record.key[1])
    rating = value_of(get(rating_key(ladder, user)), Rating)
    if rating is None or ladder_key(ladder, rating.rating, user) != record.key:
        yield f"{user!r} has a different rating"


def _lane(record: Record, get: Lookup) -> Iterator[str]:
    _, id_, epoch = keys.split(record.key[0])
    key, kind, number = keys.split(record.key[1])
    head = value_of(get(head_key(id_)), Head)
    if head is None or head.epoch != epoch or head.phase == "closed":
        return  # the table was closed and is being removed
    if key not in head.lanes:
        yield f"the table has no lane {key!r}"
        return
    if kind != "wait":
        if value_of(record, str if kind == "block" else list[int]) is None:
            yield "not a block of removed numbers"
        return
    wait = value_of(record, Wait)
    if wait is None:
        yield "not an entry of a lane"
        return
    for user in wait.users:
        stand = value_of(get(stand_key(id_, epoch, user)), Stand)
        if stand is None or (stand.role, stand.lane, stand.number) != ("waiting", key, int(number)):
            yield f"{user!r} waits in a lane but has no record of it"


def _stand(record: Record, get: Lookup) -> Iterator[str]:
    _, id_, epoch = keys.split(record.key[0])
    [user] = keys.split(record.key[1])
    head, stand = value_of(get(head_key(id_)), Head), value_of(record, Stand)
    if head is None or head.epoch != epoch or head.phase == "closed":
        return
    if stand is None:
        yield "not the record of a user at a table"
    elif stand.role == "seated" and not any(s.user == user for s in head.seats.values()):
        yield f"{user!r} has no seat"
    elif stand.role == "waiting" and get(wait_key(id_, epoch, stand.lane, stand.number)) is None:
        yield f"{user!r} has no entry in a lane"


RULES = [
    Rule(TABLES, _listed),
    Rule("table", _table),
    Rule("lane", _lane),
    Rule("stand", _stand),
    Rule("rating", _rating),
    Rule("ladder", _ladder),
]
