"""Undo and redo of a client's own steps.

Undoing a step is a new step that restores the previous values. It restores a value only if the
client's own change is still the latest. Later changes of other members are kept and reported.
Additions are undone by subtraction, even if others have added since.
"""

from collections.abc import Iterable
from typing import NamedTuple

from onceward import limits
from onceward.api import room_changes as op
from onceward.api.room_changes import RoomOperation
from onceward.client.rooms.replica import Replica
from onceward.client.rooms.steps import Place, Step
from onceward.errors import BadInput, OncewardError
from onceward.rooms.state import Cell, same


class Turned(NamedTuple):
    """The result of undo or redo."""

    step: Step | None
    """The new step, or None if there was nothing to change."""
    kept: list[str]
    """Values that were not restored, with the reason: one sentence each."""


class Undo:
    """The undo and redo stacks of one replica."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._steps: list[Step] = []
        self._undone: list[Step] = []

    @property
    def can_undo(self) -> bool:
        return bool(self._steps)

    @property
    def can_redo(self) -> bool:
        return bool(self._undone)

    def record(self, step: Step) -> None:
        """Add a new step to the undo stack and clear the redo stack. Steps without changes are
        ignored.
        """
        if step.effects:
            self._forget(self._undone)
            self._push(self._steps, step)

    def undo(self) -> Turned:
        """Undo the last step. Raises `BadInput` if there is nothing to undo."""
        return self._turn(self._steps, self._undone, "undo")

    def redo(self) -> Turned:
        """Redo the last undone step. Raises `BadInput` if there is nothing to redo."""
        return self._turn(self._undone, self._steps, "redo")

    def _turn(self, source: list[Step], target: list[Step], what: str) -> Turned:
        if self._replica.open is not None:
            raise BadInput(f"a batch is open; end it before you {what}")
        self._replica.settle()
        if not source:
            raise BadInput(f"there is nothing to {what}; check `can_undo` and `can_redo` first")
        step = source.pop()
        step.taken_back = True
        ops, kept = self._inverse(step)
        made = None
        try:
            if ops:
                made = self._replica.change(ops)
        except OncewardError as error:
            kept.append(error.message)
        if made is not None:
            made.undone = step
            self._push(target, made)
        return Turned(made, kept)

    def _push(self, steps: list[Step], step: Step) -> None:
        step.kept = True
        steps.append(step)
        if len(steps) > limits.ROOM_UNDO_MAX:
            self._forget(steps, 1)
        step.on_answer(self._answered)

    def _answered(self, step: Step) -> None:
        if not step.kept:
            self._part(step)
        elif step.error is not None:
            for steps in (self._steps, self._undone):
                if step in steps:
                    steps.remove(step)

    def _forget(self, steps: list[Step], count: int | None = None) -> None:
        for step in steps[:count]:
            step.kept = False
            if step.answered:
                self._part(step)
        del steps[:count]

    def _part(self, step: Step) -> None:
        """Drop the records of a step that cannot be undone, unless it is an undo step: other steps
        find their predecessors by it.
        """
        step.below = {}
        if step.undone is None:
            latest = self._replica.latest
            for effect in step.effects or ():
                place: Place = (effect.kind, effect.name, effect.key)
                if latest.get(place) is step:
                    del latest[place]

    def _inverse(self, step: Step) -> tuple[list[RoomOperation], list[str]]:
        """The operations that undo a step, and the values that they do not restore."""
        old: dict[Place, Cell | None] = {}
        new: dict[Place, Cell | None] = {}
        for effect in step.effects or ():
            place: Place = (effect.kind, effect.name, effect.key)
            old.setdefault(place, effect.old)
            new[place] = effect.new
        ops: list[RoomOperation] = []
        kept: list[str] = []
        for place in reversed(list(_targets(step.ops, old))):
            counted = _counted(step.ops, place)
            if counted is not None:
                ops += self._count_back(place, counted, kept)
            elif not self._is_latest(place, step):
                kept.append(
                    f"{_named(place)} was changed by others since, or its history is unknown"
                )
            elif place[2] is None and old[place] is None and self._filled(place, ops):
                kept.append(f"{_named(place)} is in use")
            else:
                stays = _has_moved(old[place], new[place]) and self._is_stale(place, step)
                if stays:
                    kept.append(
                        f"{_named(place)} keeps its position, because its list was renumbered"
                    )
                ops += _restore(place, old[place], new[place], stays=stays)
        return ops, kept

    def _is_latest(self, place: Place, step: Step) -> bool:
        """Whether a step's change is the latest, ignoring changes that were undone."""
        latest = self._replica.latest.get(place)
        while latest is not step:
            if latest is not None and latest.taken_back:
                latest = latest.below.get(place)
            elif latest is not None and latest.undone is not None:
                latest = latest.undone.below.get(place)
            else:
                return False
        return True

    def _is_stale(self, place: Place, step: Step) -> bool:
        """Whether a position from before a step is obsolete."""
        return self._replica.numbered.get(place[1], 0) != step.numbered.get(place[1], 0)

    def _filled(self, place: Place, ops: list[RoomOperation]) -> bool:
        """Whether a map or list has content that these operations do not remove."""
        kind, name, _ = place
        state = self._replica.state
        items = state.lists.get(name)
        if kind == "map":
            gone = {one.key for one in ops if isinstance(one, op.MapDelete) and one.map == name}
            return not state.maps.get(name, {}).keys() <= gone
        gone = {one.id for one in ops if isinstance(one, op.ListDelete) and one.list == name}
        return items is not None and not items.cells.keys() <= gone

    def _count_back(self, place: Place, counted: float, kept: list[str]) -> list[RoomOperation]:
        _, name, key = place
        cell = self._replica.state.get(*place)
        if key is None or cell is None or type(cell.value) not in (int, float):
            kept.append(f"{key!r} in {name!r} is no longer a number")
            return []
        return [op.MapAdd(name, key, -counted)]


def _named(place: Place) -> str:
    kind, name, key = place
    return f"the {kind} {name!r}" if key is None else f"{key!r} in {name!r}"


def _targets(ops: list[RoomOperation], changed: Iterable[Place]) -> Iterable[Place]:
    """The places that operations address, among those that have changed."""
    named: set[Place] = set()
    dropped: set[tuple[str, str]] = set()
    for does in ops:
        if isinstance(does, op.MapDrop | op.MapMake):
            dropped.add(("map", does.map))
        elif isinstance(does, op.ListDrop | op.ListMake):
            dropped.add(("list", does.list))
        elif isinstance(does, op.MapSet | op.MapDelete | op.MapCompare | op.MapAdd):
            named.add(("map", does.map, does.key))
        else:
            named.add(("list", does.list, does.id))
    return [place for place in changed if place in named or place[:2] in dropped]


def _counted(ops: list[RoomOperation], place: Place) -> float | None:
    """The sum that was added at a place if it had no other operations; otherwise None."""
    total: float = 0
    for does in ops:
        if isinstance(does, op.MapAdd) and ("map", does.map, does.key) == place:
            total += does.by
        elif isinstance(does, op.MapOp) and place[:2] == ("map", does.map):
            key = getattr(does, "key", None)
            if key is None or key == place[2]:
                return None
    return total or None


def _has_moved(old: Cell | None, new: Cell | None) -> bool:
    return old is not None and new is not None and new.position != old.position


def _restore(
    place: Place, old: Cell | None, new: Cell | None, *, stays: bool
) -> list[RoomOperation]:
    """The operations that restore the old cell of a place; only its value if the item stays in
    place.
    """
    kind, name, key = place
    if kind == "map":
        if key is None:
            return [op.MapMake(name) if old is not None else op.MapDrop(name)]
        return [op.MapDelete(name, key) if old is None else op.MapSet(name, key, old.value)]
    if key is None:
        return [op.ListMake(name) if old is not None else op.ListDrop(name)]
    if old is None:
        return [op.ListDelete(name, key)]
    if new is None:
        return [op.ListInsert(name, key, old.value, at=old.position)]
    ops: list[RoomOperation] = []
    if not same(new.value, old.value):
        ops.append(op.ListSet(name, key, old.value))
    if _has_moved(old, new) and not stays:
        ops.append(op.ListMove(name, key, at=old.position))
    return ops
