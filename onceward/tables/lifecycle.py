"""Tables as a whole: made, found, paused and closed; and what time does to them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from onceward import keys, limits
from onceward.api.tables import Leader, Policy, Rating, Reason, Table, Then
from onceward.errors import BadInput, NoSuchTable
from onceward.json_values import encode
from onceward.keys import Key
from onceward.store.savepoint import whole
from onceward.store.transaction import Transaction
from onceward.store.user_records import joins
from onceward.tables import rules as seating
from onceward.tables.policy import admit, names_fit, policy_of
from onceward.tables.records import (
    PURGE_DUE,
    TABLES,
    Head,
    Info,
    admit_user,
    alive_partition,
    head_key,
    info_key,
    ladder_partition,
    lane_partition,
    purge_entry,
    rating_key,
    stands_partition,
)
from onceward.tables.rounds import Games
from onceward.tables.table import OpenTable

CLOCK_WRITES = 80
EXPIRE_WRITES = 20
PURGE_WRITES = limits.SEATS_PURGE_RECORDS + 6


class Lifecycle(Games):
    """What happens to whole tables, and by the clock."""

    @joins
    @whole
    async def create(
        self,
        tx: Transaction,
        id_: str = "",
        *,
        policy: Policy | Mapping[str, Any] | None = None,
        game: str = "",
        by: str = "",
        meta: dict[str, Any] | None = None,
    ) -> Table:
        """Make a table; without an id it gets a new one. `game` names its referee, whose seats
        it has if that one knows which. Raises `BadInput`: `table_exists`, `bad_policy`, `no_game`
        if nothing here knows that game."""
        id_ = id_ or self._ids.new()
        if type(game) is not str or (game and game not in self.referees):
            raise BadInput(f"nothing here knows the game {str(game)[:100]!r}", code="no_game")
        seats: tuple[str, ...] = getattr(self.referees.get(game), "seats", ())
        if not isinstance(policy, Policy):
            if not isinstance(policy, Mapping | None):
                raise BadInput("a policy is an object of rules", code="bad_policy")
            policy = policy_of({**({"seats": seats} if seats else {}), **(policy or {})})
        admit(policy)
        if seats and policy.seats != seats:
            raise BadInput(f"{game} is played from {', '.join(seats)}", code="bad_policy")
        if by != "":
            admit_user(by)
        size = len(encode(meta or {}, ("table", "meta")))
        if type(meta or {}) is not dict or size > limits.SEATS_META_BYTES_MAX:
            raise BadInput(
                f"the metadata of a table is an object of at most {limits.SEATS_META_BYTES_MAX} "
                "bytes",
                code="value_too_large",
            )
        known, head = await tx.get(info_key(id_), Info), await tx.get(head_key(id_), Head)
        if known is not None and head is not None and head.phase != "closed":
            raise BadInput(f"there is a table {id_!r}", code="table_exists", id=id_)
        info = Info(self._ids.new(), policy, tx.now_ms, game, by, meta or {})
        sitting = await self._make(tx, id_, info)
        await sitting.save()
        return sitting.table()

    @joins
    async def get(self, tx: Transaction, id_: str) -> Table:
        """A table as it is; a closed one is known for a day."""
        return (await self._load(tx, id_, looks=True)).table()

    @joins
    async def find(
        self, tx: Transaction, *, prefix: str = "", after: str = "", most: int = 50
    ) -> list[Table]:
        """Tables whose ids begin with `prefix`, in the order of their ids, from behind `after`
        on."""
        if type(most) is not int or not 0 < most <= limits.PAGE_JOBS:
            raise BadInput(f"a page has 1 to {limits.PAGE_JOBS} tables, not {most}")
        for text in (prefix, after):
            if text and not names_fit(text, limits.SEATS_ID_BYTES_MAX):
                raise BadInput("this cannot be part of the id of a table", code="bad_name")
        start = keys.join(prefix) if prefix else ""
        end = start + "\U0010ffff" if prefix else None
        if after:
            start = max(start, keys.after(keys.join(after)))
        rows = await tx.scan(TABLES, str, start=start, end=end, limit=most)
        ids = [keys.split(row.key[1])[0] for row in rows]
        await tx.fetch([key for id_ in ids for key in (info_key(id_), head_key(id_))])
        found: list[Table] = []
        for id_ in ids:
            try:
                found.append(await self.get(tx, id_))
            except NoSuchTable:
                pass  # it has just expired
        return found

    @joins
    async def pause(self, tx: Transaction, id_: str) -> Table:
        """Stop all clocks, begin no game and seat nobody, until `resume`; twice is once."""
        sitting = await self._load(tx, id_)
        sitting.must_be_open()
        if not sitting.head.paused_ms:
            sitting.head.paused_ms = tx.now_ms
            await sitting.save()
        return sitting.table()

    @joins
    @whole
    async def resume(self, tx: Transaction, id_: str) -> Table:
        """Go on where it was paused; twice is once."""
        sitting = await self._load(tx, id_)
        sitting.must_be_open()
        if sitting.head.paused_ms:
            seating.shift(sitting.head, tx.now_ms - sitting.head.paused_ms)
            sitting.head.paused_ms, sitting.head.paused_why, sitting.head.unplayed = 0, "", 0
            await self._settle(sitting)
        return await self.get(tx, id_)

    @joins
    @whole
    async def close(self, tx: Transaction, id_: str) -> Table:
        """End it for everyone, at once; a game that is on does not count. Twice is once."""
        sitting = await self._load(tx, id_)
        if sitting.head.phase != "closed":
            await self._close(sitting)
        return sitting.table()

    # Ratings.

    @joins
    async def rating(self, tx: Transaction, ladder: str, user: str) -> Rating | None:
        """How well someone plays, or None if it is not known."""
        admit_user(user)
        _admit_ladder(ladder)
        return await tx.get(rating_key(ladder, user), Rating)

    @joins
    async def leaders(
        self, tx: Transaction, ladder: str, *, most: int = 100, after: tuple[int, str] | None = None
    ) -> list[Leader]:
        """The best players, the best one first, from behind a rating and user on."""
        _admit_ladder(ladder)
        if type(most) is not int or not 0 < most <= limits.LIST_MAX:
            raise BadInput(f"a list has 1 to {limits.LIST_MAX} entries, not {most}")
        start = ""
        if after is not None:
            try:
                rating, user = after
            except (TypeError, ValueError):
                told = "a list goes on behind a rating and a user"
                raise BadInput(told, code="bad_value") from None
            admit_user(user)
            if type(rating) is not int or not 0 <= rating <= limits.SEATS_RATING_MAX:
                raise BadInput(f"a rating is 0 to {limits.SEATS_RATING_MAX}", code="bad_value")
            start = keys.after(keys.join(limits.SEATS_RATING_MAX - rating, user))
        rows = await tx.scan(ladder_partition(ladder), Rating, start=start, limit=most)
        return [
            Leader(keys.split(row.key[1])[1], one.rating, one.games, one.won, one.drawn)
            for row in rows
            for one in [row.value]
        ]

    # What is due.

    async def tick(self, tx: Transaction, entry: Key) -> None:
        """The time has come to look at a table."""
        due_ms, id_, epoch, _ = keys.split(entry[1])
        tx.delete(entry)
        sitting = await self._sitting(tx, id_, epoch)
        if sitting is None or sitting.head.phase == "closed":
            return
        if sitting.head.due_ms != int(due_ms):
            return
        head, policy, now_ms = sitting.head, sitting.policy, tx.now_ms
        head.due_ms = 0
        if sitting.rests:
            await sitting.save()
            return
        for seat in seating.to_warn(policy, head, now_ms):
            seat.warned = True
        late = seating.late(head, now_ms)
        if late and head.phase == "playing":
            await self._forfeit(sitting, late)
        else:
            for marker in [m for m, seat in head.seats.items() if seat.user in late]:
                await sitting.rise(marker, "leave")
            if 0 < seating.bot_due_ms(policy, head) <= now_ms:
                self._let_bots_sit(sitting)
            await self._settle(sitting)

    async def _forfeit(self, sitting: OpenTable, late: list[str]) -> None:
        """Those who are late have lost; if all are, the game does not count."""
        gone: dict[str, Then] = {}
        reason: Reason = "idle"
        for seat in sitting.head.seats.values():
            if seat.user in late:
                lost = 0 < seat.away_ms <= sitting.now_ms
                reason = "lost" if lost else reason
                # Or games would begin and end for ever among those who are not there.
                seat.idle += 1
                away = lost or seat.idle >= limits.SEATS_IDLE_MAX
                gone[seat.user] = "leave" if away else sitting.policy.idle
        winners = [s.user for s in sitting.head.seats.values() if s.user not in late]
        await self._finish(sitting, winners, reason if winners else "void", gone)

    def _let_bots_sit(self, sitting: OpenTable) -> None:
        head, policy = sitting.head, sitting.policy
        there = {seat.user for seat in head.seats.values()}
        names = [name for name in policy.bots if name not in there]
        while len(head.seats) < len(policy.seats):
            sitting.sit_bot(names.pop(0))

    async def purge(self, tx: Transaction, entry: Key) -> None:
        """Remove some of what a closed table has left, and come again if there is more; in the
        end its live view."""
        _, id_, epoch, _ = keys.split(entry[1])
        tx.delete(entry)
        left = limits.SEATS_PURGE_RECORDS
        for make in (stands_partition, alive_partition, lane_partition):
            if left:
                rows = await tx.scan(make(id_, epoch), msgspec.Raw, limit=left)
                for row in rows:
                    tx.delete(row.key)
                left -= len(rows)
        info = await tx.get(info_key(id_), Info)
        if not left:
            tx.put(purge_entry(id_, epoch, tx.now_ms + 1, self._slots), PURGE_DUE)
        elif info is None:
            await self._board.close(tx, id_)
        elif info.epoch == epoch:
            due_ms = tx.now_ms + limits.SEATS_CLOSED_MS
            tx.put(purge_entry(id_, epoch, due_ms, self._slots), PURGE_DUE)

    async def _sitting(self, tx: Transaction, id_: str, epoch: str) -> OpenTable | None:
        try:
            sitting = await self._load(tx, id_)
        except NoSuchTable:
            return None
        return sitting if sitting.head.epoch == epoch else None


def _admit_ladder(ladder: str) -> None:
    if not names_fit(ladder, limits.SEATS_NAME_BYTES_MAX):
        raise BadInput("this cannot be the name of a ladder", code="bad_name")
