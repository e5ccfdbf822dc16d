"""Writes tests/fixtures/records.json: the keys and values of all stored records.

    python -m scripts.records

Each kind of record has one line per value: its path, its type, and its default. Examples of keys
come from the functions that build them. The script compares the file with the code. It refuses a
change that older or newer nodes cannot read, unless the format version is increased with it. See
docs/records.md.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from onceward import keys
from onceward.keys import Key
from onceward.locks import records as locks
from onceward.maintenance.key_source import RECORD as SERVER_KEY
from onceward.parts import all_kinds, load
from onceward.rooms import records as rooms
from onceward.rooms.owners import HUBS
from onceward.schedule import children
from onceward.schedule import records as schedule
from onceward.schedule.placement import NODES, slot_key
from onceward.schedule.settings import settings_key
from onceward.store.format import FORMAT, FORMAT_KEY, SCHEDULE_KEY
from onceward.store.store import LAST_TIME
from onceward.tables import records as tables
from onceward.tables.games.part import match_key, playing_key
from onceward.web.keyring import API_KEYS
from onceward.web.sessions import SESSIONS
from onceward.webhooks.endpoints import endpoint_key
from onceward.webhooks.suspensions import suspension_key
from onceward.webhooks.timers import WEBHOOKS, Webhook
from onceward.webhooks.timers.firings import delivery_key, firing_key, resent_key
from onceward.webhooks.timers.records import timer_key
from onceward.work.event_links import link_key
from onceward.work.inbox import dedupe_key
from onceward.work.output import page_key

FILE = Path(__file__).parents[1] / "tests" / "fixtures" / "records.json"
# Bodies of jobs in internal queues.
BODIES = {WEBHOOKS: Webhook}

_LIMITS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")
_LISTS = (
    inspect.ListType,
    inspect.VarTupleType,
    inspect.SetType,
    inspect.FrozenSetType,
)
_ARRAYS = (inspect.TupleType, inspect.NamedTupleType)

# An id of slot 3, a time, and names with characters that keys escape.
ID, MS, SLOTS = "01HZ0000000000000000000000003", 1_700_000_000_000, 64
CALLER, NAME, USER, TOKEN = "key:shop", "a#1", "ann@example.com", "0123456789abcdef"

Layout = dict[str, Any]
Lines = dict[str, str]


def layout() -> Layout:
    """The layout of all records as the code declares it."""
    types = {f"{kind.partition} {kind.sort}": kind.type for kind in all_kinds()}
    types |= {f"body in {queue}": type_ for queue, type_ in BODIES.items()}
    due = [one.kind for part in load().values() for one in part.due]
    return {
        "format": FORMAT,
        "due": sorted(due),
        "keys": [" ".join(key) for key in example_keys()],
        "records": {name: lines(types[name]) for name in sorted(types)},
    }


def example_keys() -> list[Key]:
    """One key of each kind of record."""
    return [
        keys.user_key((NAME, NAME)),
        *(LAST_TIME, FORMAT_KEY, SCHEDULE_KEY, SERVER_KEY),
        *(("probe", "app"), (NODES, f"app~{ID}"), slot_key(3), (HUBS, f"app~{ID}")),
        *(schedule.job_key(ID), schedule.lease_key(ID), schedule.steps_key(ID)),
        (schedule.due_partition(3), keys.join(MS, ID, schedule.JOB_DUE)),
        (schedule.due_partition(3), keys.join(MS, ID, TOKEN, schedule.LEASE_DUE)),
        (schedule.ready_partition(3, "q"), f"{10:016d}#{MS:016d}#{ID}"),
        (schedule.line_partition(3, "q", NAME), keys.number(1)),
        schedule.order_head_key(3, "q", NAME),
        schedule.gate_key("q", NAME),
        (schedule.parked_partition("q", NAME), keys.join(5, 1)),
        *(schedule.permit_key("q", 1), schedule.rate_key("q"), settings_key("q")),
        schedule.merge_key("q", "key:shop", "batch k"),
        *(schedule.events_key(ID), schedule.output_key(ID), page_key(ID, 7), link_key(ID)),
        children.family_key(ID, 1),
        children.child_key(ID, 1, 0),
        children.past_key(ID, 1, 0, MS),
        (schedule.failed_partition("q"), keys.join(MS, ID)),
        *(dedupe_key("q", CALLER, NAME), dedupe_key("q", CALLER, "k" * 1_000)),
        *(locks.head_key(NAME, SLOTS), locks.hold_key(NAME, 1, SLOTS)),
        *(locks.wait_key(NAME, 1, SLOTS), locks.request_key(ID), locks.renewed_key(ID)),
        *(locks.fence_key(3), locks.gate_key(NAME)),
        *(firing_key(CALLER, NAME, ID), delivery_key(CALLER, NAME, ID)),
        resent_key(CALLER, ID, NAME),
        *(timer_key(CALLER, NAME, SLOTS), endpoint_key(CALLER, NAME), suspension_key(CALLER)),
        *(rooms.listed_key(NAME), rooms.info_key(NAME), rooms.head_key(NAME)),
        (rooms.log_partition(NAME, ID), keys.number(1)),
        (rooms.snapshot_partition(NAME, ID), keys.join(1, 0)),
        *(tables.listed_key(NAME), tables.info_key(NAME), tables.head_key(NAME)),
        *(tables.stand_key(NAME, ID, USER), tables.heartbeat_key(NAME, ID, USER)),
        tables.wait_key(NAME, ID, "main", 1),
        *(tables.block_key(NAME, ID, "main", 1), tables.group_key(NAME, ID, "main", 1)),
        *(tables.rating_key(NAME, USER), tables.ladder_key(NAME, 1_200, USER)),
        *(match_key(ID), (match_key(ID)[0], keys.join("log", 1)), playing_key(NAME)),
        *((API_KEYS, "0" * 64), (SESSIONS, keys.join(CALLER, ID))),
        *(kind.example for kind in all_kinds() if kind.example is not None),
    ]


def lines(type_: Any) -> Lines:
    """The values in a record of a type: path, and type with default."""
    return dict(_lines("", "", inspect.type_info(type_), ()))


def _lines(
    path: str, default: str, info: inspect.Type, within: tuple[type, ...]
) -> Iterator[tuple[str, str]]:
    info = _plain(info)
    yield path, f"{_word(info)}{default}"
    if isinstance(info, inspect.UnionType):
        for one in map(_plain, info.types):
            tagged = isinstance(one, inspect.StructType) and one.tag is not None
            yield from _inner(f"{path}<{one.tag}>" if tagged else path, one, within)
    else:
        yield from _inner(path, info, within)


def _inner(path: str, info: inspect.Type, within: tuple[type, ...]) -> Iterator[tuple[str, str]]:
    """The values inside another one."""
    if isinstance(info, inspect.StructType):
        if info.cls in within:
            return
        sparse = info.cls.__struct_config__.omit_defaults
        for number, field in enumerate(info.fields):
            name = f"{path}.{field.encode_name}"
            default = _default(field, shown=sparse)
            if info.array_like:
                name, default = f"{path}[{number}]", f" {field.encode_name}{default}"
            yield from _lines(name, default, field.type, (*within, info.cls))
    elif isinstance(info, inspect.DictType):
        yield from _lines(f"{path}{{}}", "", info.value_type, within)
    elif isinstance(info, _LISTS):
        yield from _lines(f"{path}[]", "", info.item_type, within)
    elif isinstance(info, inspect.TupleType):
        for number, item in enumerate(info.item_types):
            yield from _lines(f"{path}[{number}]", "", item, within)
    elif isinstance(info, inspect.NamedTupleType):
        for number, field in enumerate(info.fields):
            default = f" {field.name}{_default(field, shown=False)}"
            yield from _lines(f"{path}[{number}]", default, field.type, within)


def _plain(info: inspect.Type) -> inspect.Type:
    """A type without annotations that do not change its JSON."""
    return _plain(info.type) if isinstance(info, inspect.Metadata) else info


def _word(info: inspect.Type) -> str:
    """A type without the values inside."""
    info = _plain(info)
    if isinstance(info, inspect.UnionType):
        return " | ".join(sorted(_word(one) for one in info.types))
    if isinstance(info, inspect.StructType):
        word = "array" if info.array_like else "object"
        tag = "" if info.tag is None else f" {info.tag_field}={info.tag}"
        sparse = " sparse" if info.cls.__struct_config__.omit_defaults else ""
        return f"{'strict ' if info.forbid_unknown_fields else ''}{word}{tag}{sparse}"
    if isinstance(info, inspect.LiteralType):
        return " or ".join(json.dumps(value) for value in sorted(info.values))
    if isinstance(info, inspect.EnumType):
        return " or ".join(sorted(json.dumps(one.value) for one in info.cls))
    if isinstance(info, inspect.CustomType):
        return info.cls.__name__
    word = type(info).__name__.removesuffix("Type").lower()
    word = "list" if isinstance(info, _LISTS) else "array" if isinstance(info, _ARRAYS) else word
    bounds = [(name, getattr(info, name, None)) for name in _LIMITS]
    return word + "".join(f" {name} {bound}" for name, bound in bounds if bound is not None)


def _default(field: Any, *, shown: bool) -> str:
    """Whether records may lack a field. The default is included if it is not written, since a
    changed default then changes the meaning of records."""
    if field.required:
        return ", required"
    if not shown:
        return ", optional"
    default = field.default
    if default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT:
        return ", absent by default"
    if default is msgspec.NODEFAULT:
        default = field.default_factory()
    return f" = {msgspec.json.encode(default).decode()}"


def incompatible(old: Layout, new: Layout) -> list[str]:
    """Why nodes with one layout cannot work beside nodes with the other."""
    found = [
        f"no part acts on due entries {kind!r}" for kind in old["due"] if kind not in new["due"]
    ]
    found += [
        f"no function builds the key {key!r}" for key in old["keys"] if key not in new["keys"]
    ]
    for name, before in old["records"].items():
        after = new["records"].get(name)
        if after is None:
            found.append(f"{name}: no part declares these records, or their key has changed")
        else:
            found += [f"{name}: {why}" for why in _differences(before, after)]
    return found


def _differences(before: Lines, after: Lines) -> Iterator[str]:
    for path, text in before.items():
        if path in after and after[path] != text:
            yield f"{path or 'the value'} was {text!r} and is {after[path]!r}"
        elif path not in after and _outer(path, before) in after:
            if text.endswith(", required") or path.endswith("]"):
                yield f"older nodes need {path}, which is gone"
            elif "strict " in after[_outer(path, before)]:
                yield f"newer nodes reject {path}, which is gone"
    for path, text in after.items():
        if path not in before and _outer(path, after) in before:
            outer = before[_outer(path, after)]
            if text.endswith(", required"):
                yield f"older records have no {path}, which has no default"
            elif "strict " in outer and " sparse" not in outer:
                yield f"older nodes reject {path}, which is new"


def _outer(path: str, known: Lines) -> str:
    """The path of the value around another one."""
    while path:
        path = path[: max(map(path.rfind, ".[{<"))]
        if path in known:
            break
    return path


def main() -> int:
    new = layout()
    if FILE.exists():
        old = json.loads(FILE.read_text(encoding="utf-8"))
        found = incompatible(old, new)
        if found and old["format"] == new["format"]:
            print(*found, sep="\n", file=sys.stderr)
            print(
                "increase FORMAT in onceward/store/format.py, or make the change compatible: "
                "docs/records.md",
                file=sys.stderr,
            )
            return 1
    FILE.write_text(json.dumps(new, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
