"""Checks of the assignment of slots to nodes.

It parses the records of nodes and slots as text, and uses notes of nodes: start, normal stop, and
the slots that they consider their own. A node's name in the records starts with its name in the
simulation.
"""

import json
from typing import Any, Final

from onceward.engine.base import Delete, Put
from onceward.testing.simulation.history import NEVER_NS, History, violated

# An observer measures the time between two reads of a node's record, which is never less than the
# lease.
_ROUNDING_NS: Final = 1_000_000


def judge_slots(
    history: History, slots: int, *, lease_ns: int, bound_ns: int, two_owners: bool
) -> None:
    """Raise a `Violation` if a slot was taken from a live node, or has a wrong final owner.

    `bound_ns` is the time after the last fault by which all slots must have their owners; 0 skips
    this check. With `two_owners`, nodes ignore the records, so only the records are checked.
    """
    _judge_changes(history, lease_ns)
    owned = _beliefs(history)
    if two_owners:
        history.seen["two owners at once"] += len(owned) > 1
    elif bound_ns:
        _judge_end(history, slots, owned, history.calm_ns + bound_ns)
        history.seen["slots judged"] += 1


def life_of(name: str) -> str:
    """The life of a server that registered under this name."""
    return name.partition("~")[0]


def _judge_changes(history: History, lease_ns: int) -> None:
    """Slots change owners only without a live owner; nodes are removed only after a lease."""
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
                    violated("slots", f"{sort} was removed {silent_ns / 1e9} s after a heartbeat")
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
        violated("slots", f"{what} was taken by {after}, which had been removed")
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
    """Each slot must have one live owner that knows of it, at the latest at the bound."""
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
        violated("slots", f"records exist for {lives}, but the live nodes are {sorted(owned)}")
