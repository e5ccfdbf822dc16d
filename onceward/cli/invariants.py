"""The parts of a database, each with the kinds of its records and their invariants.

`onceward check` goes by this list. A kind of records that is in the table of `onceward.keys` and in
no part fails a test.
"""

from collections.abc import Iterator
from typing import Literal

from onceward import keys
from onceward.engine.base import Record
from onceward.engine.invariants import RULES as COMMON_RULES
from onceward.engine.invariants import Lookup, Part, Rule, decodes
from onceward.locks import invariants as locks
from onceward.maintenance.key_source import RECORD as SERVER_KEY
from onceward.maintenance.key_source import KeyRecord
from onceward.node import Config
from onceward.rooms import invariants as rooms
from onceward.rooms.owners import HUBS, Address
from onceward.schedule import invariants as schedule
from onceward.schedule.placement import NODES, SLOTS, Heartbeat, Slot
from onceward.store.format import FORMAT_KEY, SCHEDULE_KEY, Format
from onceward.store.store import LAST_TIME
from onceward.tables import invariants as seats
from onceward.tables.games import invariants as games
from onceward.web.keyring import PARTITION as API_KEYS
from onceward.web.keyring import StoredKey
from onceward.web.sessions import PARTITION as SESSIONS
from onceward.web.sessions import StoredSession
from onceward.webhooks.endpoints import ENDPOINTS, Endpoint
from onceward.webhooks.suspensions import PARTITION as SUSPENDED
from onceward.webhooks.suspensions import Suspension
from onceward.webhooks.timers import invariants as timers
from onceward.work import steps

_CONFIG = "config"


def _config(record: Record, get: Lookup) -> Iterator[str]:
    if record.key not in (SCHEDULE_KEY, FORMAT_KEY, SERVER_KEY):
        yield "there is no such setting of a database"


PARTS: list[Part] = [
    Part("all", COMMON_RULES),
    Part(
        "store",
        [
            decodes("attempt", Literal["committed", "fenced"], "the verdict of a commit"),
            decodes(LAST_TIME[0], int, "the time that a node has noted"),
        ],
    ),
    Part(
        "settings",
        [
            Rule(_CONFIG, _config),
            decodes(_CONFIG, Config, "what was chosen at first", SCHEDULE_KEY[1]),
            decodes(_CONFIG, Format, "the format of records", FORMAT_KEY[1]),
            decodes(_CONFIG, KeyRecord, "the check values of server keys", SERVER_KEY[1]),
        ],
    ),
    Part("applications", [Rule(keys.kind_of(keys.USER), lambda record, get: ())]),
    Part("API keys", [decodes(API_KEYS, StoredKey, "an API key")]),
    Part("callers", [decodes(SUSPENDED, Suspension, "the suspension of a caller")]),
    Part("console", [decodes(SESSIONS, StoredSession, "a session")]),
    Part(
        "nodes",
        [
            decodes(NODES, Heartbeat, "the heartbeat of a node"),
            decodes(SLOTS, Slot, "the owner of a slot"),
            decodes(HUBS, Address, "the address of a node"),
            decodes("probe", int, "the time of a probe"),
        ],
    ),
    schedule.PART,
    steps.PART,
    locks.PART,
    timers.PART,
    Part("endpoints", [decodes(ENDPOINTS, Endpoint, "an endpoint")]),
    rooms.PART,
    seats.PART,
    games.PART,
]
_DUE_KINDS = frozenset(kind for part in PARTS for kind in part.due)


def _due(record: Record, get: Lookup) -> Iterator[str]:
    kind = keys.split(record.key[1])[-1]
    if kind not in _DUE_KINDS:
        yield f"no part has entries of the kind {kind!r}"


RULES = [*(rule for part in PARTS for rule in part.rules), Rule("due", _due)]
"""All invariants."""
