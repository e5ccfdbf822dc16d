"""Invariants of match records, for `onceward db check` and tests."""

from collections.abc import Iterator
from typing import Any
from zlib import crc32

import msgspec

from onceward import keys, limits
from onceward.api.matches import MatchEntry
from onceward.engine.base import Record
from onceward.engine.invariants import Lookup, Rule, value_of
from onceward.keys import Key
from onceward.schedule import due_partition
from onceward.tables.games.match import Match
from onceward.tables.games.part import LOG, MATCH_DUE, match_key, playing_key

_CONFIG = ("config", "schedule")
_entry_type: Any = MatchEntry
_read_entry = msgspec.json.Decoder(_entry_type).decode


def _match(record: Record, get: Lookup) -> Iterator[str]:
    partition, sort = record.key
    if sort != "head":
        # Some log entries remain while a match is being removed.
        try:
            _read_entry(record.value)
        except msgspec.DecodeError:
            yield "not a log entry of a match"
        return
    match = value_of(record, Match)
    if match is None:
        yield "not a match"
        return
    for number in (1, match.entries):
        if get((partition, keys.join(LOG, number))) is None:
            yield f"log entry {number} is missing"
    place = match.begun.place
    if place and match.outcome is None and value_of(get(playing_key(place)), str) != match.begun.id:
        yield f"the match is running but is not registered at its place {place!r}"
    entry = _entry(match, get)
    if entry is not None and get(entry) is None:
        yield f"the due entry {'/'.join(entry)} is missing"


def _playing(record: Record, get: Lookup) -> Iterator[str]:
    id_ = value_of(record, str)
    found = None if id_ is None else get(match_key(id_))
    match = value_of(found, Match)
    if match is None:
        yield f"match {id_!r} does not exist"
    elif match.outcome is not None or keys.join(match.begun.place) != record.key[1]:
        yield f"match {id_!r} is not running here"


def _due(record: Record, get: Lookup) -> Iterator[str]:
    words = keys.split(record.key[1])
    if words[-1] != MATCH_DUE or len(words) != 3:
        return
    found = get(match_key(words[1]))
    match = value_of(found, Match)
    # The head may already be gone while a match is being removed.
    if match is not None and _entry(match, get) not in (None, record.key):
        yield f"match {words[1]!r} has another due entry"


def _entry(match: Match, get: Lookup) -> Key | None:
    """The due entry of a match; None if it has no entry, or its game is unknown."""
    due_ms = match.due_ms
    if match.outcome is not None:
        due_ms = match.ended_ms + limits.MATCH_RETENTION_MS
    config = get(_CONFIG)
    if due_ms is None or config is None:
        return None
    slot = crc32(match.begun.id.encode()) % msgspec.json.decode(config.value)["slots"]
    return due_partition(slot), keys.join(due_ms, match.begun.id, MATCH_DUE)


RULES = [Rule("match", _match), Rule("playing", _playing), Rule("due", _due)]
