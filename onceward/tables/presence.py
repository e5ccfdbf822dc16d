"""Presence of players at a table, derived from connections to its live view.

The node that serves the room sees all its connections, from all nodes. When the last connection of
a user is lost, the seat is kept for the grace period; a new connection ends that period.
Connections count as heartbeats.
"""

import asyncio
import logging

from onceward import limits
from onceward.errors import PASSING, BadInput, OncewardError
from onceward.rooms.hub import Hub
from onceward.store import Store
from onceward.tables.live_view import table_of
from onceward.tables.server import Tables

logger = logging.getLogger("onceward.tables")

_SIGNS_AT_ONCE = 40
_TRIES = 10


class Presence:
    """Tracks the connected users of tables. One per process."""

    def __init__(self, store: Store, hub: Hub, tables: Tables) -> None:
        self._clock = store.clock
        self._hub = hub
        self._tables = tables
        self._here: dict[str, dict[str, None]] = {}
        """The users who are connected, by table."""
        self._telling: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._keeping: dict[str, asyncio.Task[None]] = {}
        self._closed = False
        hub.on_user(self._saw)
        hub.on_over(self._lost_sight)

    async def close(self) -> None:
        """Stop tracking, so that the shutdown of a node is not seen as lost connections.
        Idempotent."""
        self._closed = True
        self._here.clear()
        tasks = [*self._telling.values(), *self._keeping.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _saw(self, room: str, user: str, here: bool) -> None:
        table = table_of(room)
        if table is None or self._closed:
            return
        users = self._here.setdefault(table, {})
        if here:
            users[user] = None
        else:
            users.pop(user, None)
        if table not in self._keeping:
            self._keeping[table] = self._hub.spawn(self._keep_alive(table))
        if (table, user) not in self._telling:
            self._telling[table, user] = self._hub.spawn(self._tell(table, user))

    def _lost_sight(self, room: str) -> None:
        """Drop the connections of a room that this node does not serve now; its new node tracks
        them."""
        table = table_of(room)
        if table is not None:
            self._here.pop(table, None)
            telling = [task for (of, _), task in self._telling.items() if of == table]
            for task in telling:
                task.cancel()

    async def _tell(self, table: str, user: str) -> None:
        """Record the user's presence at the table, repeated until it is up to date."""
        try:
            told: bool | None = None
            tries = 0
            while told != (here := user in self._here.get(table, ())) and tries < _TRIES:
                try:
                    await (self._tables.back if here else self._tables.away)(table, user)
                    told = here
                except BadInput:
                    return  # the table or user does not exist
                except PASSING as error:
                    tries += 1
                    logger.warning("cannot update table %s for user %s: %s", table, user, error)
                    await self._clock.sleep(limits.POLL_S)
        except OncewardError as error:
            logger.error("cannot update table %s for user %s: %s", table, user, error)
        finally:
            self._telling.pop((table, user), None)

    async def _keep_alive(self, table: str) -> None:
        """Record heartbeats for all connected users while there are any."""
        try:
            policy = (await self._tables.get(table)).policy
            if not policy.waiting_ms:
                return
            while self._here.get(table):
                await self._clock.sleep(policy.waiting_ms / limits.SEATS_SIGNS / 1000)
                users = list(self._here.get(table, ()))
                for start in range(0, len(users), _SIGNS_AT_ONCE):
                    try:
                        await self._tables.heartbeat(table, users[start : start + _SIGNS_AT_ONCE])
                    except PASSING as error:
                        logger.warning("cannot record heartbeats at table %s: %s", table, error)
        except BadInput:
            pass  # the table was removed
        except OncewardError as error:
            logger.error("cannot record heartbeats at table %s: %s", table, error)
        finally:
            self._keeping.pop(table, None)
            if not self._here.get(table):
                self._here.pop(table, None)
