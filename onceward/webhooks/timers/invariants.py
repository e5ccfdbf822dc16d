"""Invariants of timer records, for `onceward db check` and tests."""

from collections.abc import Iterator

from onceward import keys
from onceward.engine.base import Record
from onceward.engine.invariants import Lookup, Rule, value_of
from onceward.webhooks.timers.records import TIMER_DUE, Timer, entry_in, timer_partition


def _timer(record: Record, get: Lookup) -> Iterator[str]:
    partition, sort = record.key
    timer = value_of(record, Timer)
    if timer is None:
        yield "not a timer"
        return
    caller, id_ = keys.split(sort)
    place = entry_in(int(partition.partition("#")[2]), caller, id_, timer)
    if timer.state == "active" and get(place) is None:
        yield f"the timer is active but its due entry {'/'.join(place)} is missing"


def _due(record: Record, get: Lookup) -> Iterator[str]:
    partition, sort = record.key
    words = keys.split(sort)
    if words[-1] != TIMER_DUE or len(words) != 5:
        return
    slot = int(partition.partition("#")[2])
    found = get((timer_partition(slot), keys.join(words[1], words[2])))
    timer = value_of(found, Timer)
    if timer is None:
        yield f"timer {words[2]!r} does not exist"
    elif timer.state != "active" or entry_in(slot, words[1], words[2], timer) != record.key:
        yield f"timer {words[2]!r} has another due entry: it is {timer.state}"


RULES = [Rule("timer", _timer), Rule("due", _due)]
