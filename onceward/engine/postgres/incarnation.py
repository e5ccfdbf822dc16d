"""Incarnations: detects a failover, restore or clone before a connection is used.

A standby that replicates asynchronously may lack acknowledged commits. A node therefore keeps the
last acknowledged number of each of its lanes. Every new connection compares these with the server's
numbers; see `sql/0004_incarnation.sql`.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import WeakSet

from onceward import limits
from onceward.alarms import Alarms
from onceward.clock import boot_ns
from onceward.engine.base import Incarnation
from onceward.engine.postgres.link import Link, Target
from onceward.errors import CannotOpen

logger = logging.getLogger("onceward.postgres")

COMMITS_LOST: Final = "commits_lost"
"""The code of the alarm."""

FIND: Final = """
SELECT {before} number, id, since_ms, server, began, lost, lost_at
FROM {schema}.find_incarnation($1, $2, $3::text::bigint[], $4::text::bigint[])
"""

# Subscribers of logical replication have no copy that could be promoted. All users may read these
# columns.
_UNSAFE: Final = """
SELECT count(*) FROM pg_catalog.pg_stat_replication AS r
WHERE (current_setting('synchronous_standby_names') = ''
        OR current_setting('synchronous_commit') = 'local')
    AND coalesce(r.state, '') <> 'backup'
    AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_replication_slots AS s
        WHERE s.active_pid = r.pid AND s.slot_type = 'logical'
    )
"""


class Incarnations:
    """The incarnation that this node uses, and the commits that it acknowledged."""

    def __init__(
        self, target: Target, alarms: Alarms, changed: Callable[[Incarnation], None]
    ) -> None:
        """`changed` is called before a connection to another incarnation is used."""
        self._target = target
        self._alarms = alarms
        self._changed = changed
        self._find = FIND.format(before="", schema=target.schema)
        self._links: WeakSet[Link] = WeakSet()
        self._acknowledged: dict[int, tuple[int, int]] = {}
        self.current: Incarnation | None = None

    def acknowledged(self, lane: int, number: int) -> None:
        """Store the number of the last acknowledged batch of a lane; 0 for a new lane."""
        known = self._acknowledged
        known[lane] = number, boot_ns()
        if len(known) > limits.LANES_KNOWN_MAX:
            del known[min(known, key=lambda lane: known[lane][1])]

    async def admit(self, link: Link) -> None:
        """Determine the incarnation of a new connection. Raises `CannotOpen` if this node has
        already used a later one, `Rejected` or `Lost`.
        """
        [row] = await link.fetch(self._find, *self.arguments)
        self.found(row, link)
        self._links.add(link)

    @property
    def arguments(self) -> tuple[str, int, str, str]:
        """The arguments of `FIND`."""
        # The server removes lanes that were unused for a day.
        since_ns = boot_ns() - limits.LANE_KNOWN_S * 1_000_000_000
        lanes = {
            lane: number
            for lane, (number, at_ns) in self._acknowledged.items()
            if at_ns >= since_ns
        }
        current = self.current
        return (
            current.id if current else "",
            current.number if current else 0,
            _array(lanes),
            _array(lanes.values()),
        )

    def found(self, row: Sequence[Any], link: Link | None = None) -> None:
        """Apply the result of `FIND`. If the incarnation is new, close all connections except
        `link`.
        """
        number, id_, since_ms, server, began, lost, lost_at = row
        before = self.current
        found = Incarnation(id_, number, since_ms)
        if before is not None and number < before.number:
            raise CannotOpen(
                f"{self._target.label} is an earlier copy of the database ({server}; incarnation "
                f"{number}, but this node has used {before.number}), perhaps a former primary. "
                "Stop that "
                "server. If you restored a backup on purpose, restart all nodes.",
                code="engine_unreachable",
            )
        if found != before:
            self.current = found
            if before is not None or (began and number > 1):
                logger.warning(
                    "%s was restored or failed over: incarnation %d (%s), before: %s. Cached "
                    "records are dropped.",
                    *(self._target.label, number, server, before.number if before else "unknown"),
                )
            if before is not None:
                for other in list(self._links):
                    if other is not link:
                        other.drop()
                self._changed(found)
        if lost:
            self._alarms.raise_(COMMITS_LOST, _told(self._target, lost, lost_at))
        else:
            self._alarms.clear(COMMITS_LOST)


def _told(target: Target, lost: int, lost_at: str) -> str:
    return (
        f"{target.label} has lost at least {lost} acknowledged batches of commits, found at "
        f"{lost_at}: a standby without them was promoted, or an old backup restored. Follow "
        '"Lost commits" in docs/postgresql.md, then run: SELECT '
        f"{target.schema}.accept_lost_commits()"
    )


async def warn_of_unsafe_standbys(link: Link, target: Target) -> None:
    """Log a warning if a failover would lose commits: standbys exist, and none is synchronous."""
    [(unsafe,)] = await link.fetch(_UNSAFE)
    if unsafe:
        logger.warning(
            "%s has %d standbys, and none is synchronous: a failover loses commits that were "
            "acknowledged. Set synchronous_standby_names, and synchronous_commit to on.",
            *(target.label, unsafe),
        )


def _array(numbers: Any) -> str:
    return f"{{{','.join(map(str, numbers))}}}"
