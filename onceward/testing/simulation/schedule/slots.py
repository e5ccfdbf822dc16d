"""Checks of the assignment of slots to nodes.

Knows the records of nodes and slots as text, and what nodes told: that they start, that they
leave in good order, and which slots they believe to be theirs. A node's name in the records
begins with its name in the simulation.
"""

import json
from typing import Any, Final

from onceward.engine.base import Delete, Put
from onceward.testing.simulation.history import NEVER_NS, History, violated

# Node records are sent and arrive in their own time; what an observer measures is between
# two reads, so it is never less than the lease.
_ROUNDING_NS: Final = 1_000_000


def judge_slots(
    history: History, slots: int, *, lease_ns: int, bound_ns: int, two_owners: bool
) -> None:
    """Raise a `Violation` if a slot was taken from someone alive, or is not well owned in the end.

    `bound_ns` is how long after all is calm the slots must have found their owners; 0 if that
    is not to be judged. `two_owners`: nodes believe what they want, only the records count.
    """
    _judge_changes(history, lease_ns)
    owned = _beliefs(history)
    if two_owners:
        history.seen["two owners at once"] += len(owned) > 1
    elif bound_ns:
        _judge_end(history, slots, owned, history.calm_ns + bound_ns)
        history.seen["slots judged"] += 1


def life_of(name: str) -> str:
    """The life of a server that has registered under this name."""
    return name.partition("~")[0]


def _judge_changes(history: History, lease_ns: int) -> None:
    """Slots change hands only when nobody alive has them; nodes are given up after a lease."""
    leaves = {note.node: note.at_ns for note in history.notes if note.topic == "leaves"}
    beats: dict[str, int] = {}
    owners: dict[str, dict[str, Any]] = {}
    for commit in history.commits:
        alive = dict(beats)
        for write in commit.writes:
            partition, sort = write.key
            if partition == "node" and type(write) is Put:
                beats[sort] = commit.at_ns
            elif partition == "node" and type(write) is Delete and sort in beats:
                silent_ns = commit.at_ns - beats.pop(sort)
                left = leaves.get(life_of(sort), NEVER_NS) <= commit.at_ns
                alone = history.mode == "local"
                if silent_ns < lease_ns - _ROUNDING_NS and not left and not alone:
                    violated("slots", f"{sort} was given up {silent_ns / 1e9} s after a beat")
            elif partition == "slot" and type(write) is Put:
                after = json.loads(write.value)
                before = owners.get(sort, {"owner": "", "epoch": 0})
                _judge_change(history, f"slot {sort}", before, after, alive)
                owners[sort] = after


def _judge_change(
    history: History,
    what: str,
    before: dict[str, Any],
    after: dict[str, Any],
    alive: dict[str, int],
) -> None:
    taken = after["owner"] != ""
    if after["epoch"] != before["epoch"] + taken:
        violated("slots", f"{what} went from {before} to {after}")
    if not taken:
        history.seen["slot handed over"] += 1
        return
    if before["owner"] in alive:
        violated("slots", f"{what} was taken by {after} from {before}, which was alive")
    if after["owner"] not in alive:
        violated("slots", f"{what} was taken by {after}, which had been given up")
    history.seen["slot taken over"] += before["owner"] != ""


def _beliefs(history: History) -> dict[str, tuple[str, list[int], int]]:
    """The last life of each server: its name in the records, its slots, and since when."""
    lives: dict[str, str] = {}
    owned: dict[str, tuple[str, list[int], int]] = {}
    for note in history.notes:
        if note.topic == "starts":
            owned.pop(lives.get(note.node.partition(".")[0], ""), None)
            lives[note.node.partition(".")[0]] = note.node
        if note.topic == "owns" and lives[note.node.partition(".")[0]] == note.node:
            owned[note.node] = (*note.body, note.at_ns)
    return owned


def _judge_end(
    history: History,
    slots: int,
    owned: dict[str, tuple[str, list[int], int]],
    bound_ns: int,
) -> None:
    """Each slot has one owner, who lives and knows it; and so it was when the bound was over."""
    owners = {int(sort): value["owner"] for sort, value in history.values("slot").items()}
    believed = {slot: name for name, believed_slots, _ in owned.values() for slot in believed_slots}
    if sorted(owners) != list(range(slots)) or owners != believed:
        violated("slots", f"owned are {owners}, but the nodes believe {owned}")
    for name, believed_slots, since_ns in owned.values():
        if since_ns > bound_ns:
            late_s = (since_ns - bound_ns) / 1e9
            violated("slots", f"{name} had {believed_slots} only {late_s} s after the bound")
        if len(believed_slots) > -(-slots // len(owned)):
            violated("slots", f"{name} has more than its share of {slots}: {owned}")
    lives = sorted(life_of(name) for name in history.values("node"))
    if lives != sorted(owned):
        violated("slots", f"there are records of {lives}, but alive are {sorted(owned)}")
