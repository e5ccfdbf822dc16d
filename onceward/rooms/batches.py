"""Group commit for rooms: steps of many rooms in one transaction.

A commit costs about as much with one step in it as with twenty, and where many small rooms are
busy, each has a step or two to commit in a turn of the event loop. So rooms say that they have
something to do, and at the end of the turn those with little are committed together, some at a
time. Such a commit succeeds or fails for all of them: if one of the rooms stands in the way of
the others, because it was deleted or has gone on elsewhere, each of them goes its own way.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from onceward import limits
from onceward.errors import EngineStopped, OutcomeUnknown, Unavailable
from onceward.rooms.loaded import Answer, Waiting
from onceward.store import Store
from onceward.store.transaction import Transaction

if TYPE_CHECKING:
    from onceward.rooms.live import LiveRoom

logger = logging.getLogger("onceward.rooms")


class RoomBatches:
    """Of all rooms of a hub."""

    def __init__(self, store: Store, spawn: Callable[[Coroutine[Any, Any, Any]], object]) -> None:
        self._store = store
        self._spawn = spawn
        self._rooms: list[LiveRoom] = []

    def add(self, room: "LiveRoom") -> None:
        """Let a room work with the end of this turn. It is not added again before that is done."""
        if not self._rooms:
            asyncio.get_running_loop().call_soon(self._begin)
        self._rooms.append(room)

    def _begin(self) -> None:
        rooms, self._rooms = self._rooms, []
        sharing: list[LiveRoom] = []
        for room in rooms:
            if len(rooms) > 1 and room.has_little:
                sharing.append(room)
            else:
                self._spawn(room.work())
        # As even as may be: the last of them is not left alone.
        groups = -(-len(sharing) // limits.ROOMS_TOGETHER_MAX)
        for number in range(groups):
            self._spawn(self._commit(sharing[number::groups]))

    async def _commit(self, rooms: Sequence["LiveRoom"]) -> None:
        batches = [room.take_up() for room in rooms]
        try:
            answers = await self._store.run(
                lambda tx: self._attempt(tx, rooms, batches), attempts_max=1
            )
        except (EngineStopped, OutcomeUnknown, Unavailable) as error:
            # What became of it nobody knows, or it would fare no better alone.
            for room, batch in zip(rooms, batches, strict=True):
                room.loaded.give_back()
                room.give_up(error)
                room.answered(batch)
            return
        except Exception:
            for room, batch in zip(rooms, batches, strict=True):
                room.loaded.give_back()
                room.put_back(batch)
                self._spawn(room.work())
            return
        now_ms, steps = self._store.clock.now_ms(), 0
        for room, batch, found in zip(rooms, batches, answers, strict=True):
            try:
                told = room.loaded.outcome(batch, found, now_ms)
                steps += told.steps
                room.tell_of(told)
            except Exception:
                logger.exception("the room %s has failed", room.id)
                room.end("room_moved", "the server has a bug; it is logged")
            room.answered(batch)
            room.go_on()
        self.count(steps)

    def count(self, steps: int) -> None:
        """Note that so many are told of."""
        if steps:
            self._store.meters.count("room_steps", steps)

    @staticmethod
    async def _attempt(
        tx: Transaction, rooms: Sequence["LiveRoom"], batches: Sequence[Sequence[Waiting]]
    ) -> list[list[Answer]]:
        found: list[list[Answer]] = []
        for room, batch in zip(rooms, batches, strict=True):
            answers = room.loaded.attempt_few(tx, batch)
            if answers is None:
                answers = await room.loaded.attempt(tx, batch)
            elif room.loaded.effort > limits.ROOM_CHANGES_MAX:
                await asyncio.sleep(0)  # others get their turn
            found.append(answers)
        return found
