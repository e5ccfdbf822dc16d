"""Games at tables: start, end and consequences for seats and ratings."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from onceward import keys, limits
from onceward.api.tables import Ending, Rating, Reason, Seat, Table, Then
from onceward.errors import NoSuchTable, OncewardError
from onceward.ids import Ids
from onceward.keys import Key
from onceward.store.transaction import Transaction
from onceward.store.user_records import UserTransaction
from onceward.tables import rules as seating
from onceward.tables.protocols import Board, Change, Referee
from onceward.tables.rating import rated
from onceward.tables.records import (
    PURGE_DUE,
    Head,
    Info,
    Stand,
    Wait,
    head_key,
    heartbeat_partition,
    info_key,
    ladder_key,
    lane_partition,
    listed_key,
    purge_entry,
    rating_key,
    stand_key,
    stands_partition,
)
from onceward.tables.table import OpenTable

_UNPLAYED = f"{limits.SEATS_UNPLAYED_MAX} games in a row ended before a move was possible"
# A commit with more writes than this leaves the next game to another commit. The next game may end
# at once, and all its players would get up again.
_BUSY_WRITES = 40
_OPENED_MS = 3_600_000  # how long a waiter can look up the table that was opened
CLOCK_WRITES = 80
EXPIRE_WRITES = 20
PURGE_WRITES = limits.SEATS_PURGE_RECORDS + 6


class Nowhere:
    """A board that shows nothing."""

    async def open(self, tx: Transaction, table: str) -> None:
        pass

    async def show(self, tx: Transaction, table: str, changes: list[Change]) -> None:
        pass

    async def close(self, tx: Transaction, table: str) -> None:
        pass


class Rounds:
    """Automatic changes of tables as players come and go."""

    def __init__(
        self, ids: Ids, slots: int, referees: Mapping[str, Referee], board: Board | None = None
    ) -> None:
        self._referees = referees
        self._ids = ids
        self._slots = slots
        self._board = board or Nowhere()
        self.count: Callable[..., None] = _not_counted
        """Counts a durable event: `count(name, **labels)`. The runtime of tables sets it."""
        self._beginning: set[tuple[Transaction, str]] = set()
        """The tables whose referees are starting a game, with the transaction."""

    async def load(self, tx: Transaction, id_: str, *, looks: bool = False) -> OpenTable:
        return await OpenTable.load(tx, id_, self._board, self._slots, looks=looks)

    async def info(self, tx: Transaction, id_: str) -> Info:
        """Return the settings of a table, which rarely change."""
        info = await tx.get(info_key(id_), Info, cached=True)
        if info is None:
            raise NoSuchTable(f"table {id_!r} not found; check its id, or create it", id=id_)
        return info

    async def make(self, tx: Transaction, id_: str, info: Info) -> OpenTable:
        """Create an empty table."""
        head = Head(info.epoch, empty_ms=tx.now_ms)
        tx.put(info_key(id_), info)
        tx.put(head_key(id_), head)
        tx.put(listed_key(id_), info.epoch)
        await self._board.open(tx, id_)
        return OpenTable(tx, id_, info, head, self._board, self._slots, new=True)

    def referee(self, sitting: OpenTable) -> Referee | None:
        game = sitting.info.game
        if not game:
            return None
        referee = self._referees.get(game)
        if referee is None:
            raise OncewardError(
                f"game {game!r} is not declared; use app.game or app.referee", code="no_game"
            )
        return referee

    # Seating.

    async def settle(self, sitting: OpenTable) -> None:
        """Seat waiting players, start a game if all are ready, and save the table."""
        head, policy = sitting.head, sitting.policy
        begins = False
        if policy.opens and not sitting.rests:
            await self._open(sitting)
        elif not sitting.rests and head.phase != "playing":
            await self._fill(sitting)
            busy = bool(sitting.info.game) and sitting.tx.size > _BUSY_WRITES
            if busy or (sitting.tx, sitting.id) in self._beginning:
                # Games that end at once would follow each other endlessly in this commit.
                sitting.more = True
            else:
                begins = self._go_on(sitting)
        if policy.ends_empty and not (sitting.rests or seating.people(head.seats) or head.waiting):
            await self.close(sitting)
            return
        await sitting.save()
        referee = self.referee(sitting) if begins else None
        if referee is not None:
            sitting.judged = True
            beginning = (sitting.tx, sitting.id)
            self._beginning.add(beginning)
            try:
                await referee.begin(UserTransaction(sitting.tx), sitting.table())
            finally:
                self._beginning.discard(beginning)

    async def _fill(self, sitting: OpenTable) -> None:
        head, policy, now_ms = sitting.head, sitting.policy, sitting.now_ms
        came = 0
        room_made = False
        while True:
            key = seating.pick(policy, head.lanes, head.seats.values(), now_ms)
            if key is None and not room_made:
                # A waiting party and seated players without a game would block each other.
                key, room_made = seating.blocked(policy, head), True
                for marker in seating.people(head.seats) if key is not None else ():
                    await sitting.rise(marker, "back")
            if key is None:
                break
            tier = head.lanes[key].tier
            wait = await sitting.next(key)
            await sitting.sit(wait.users, wait.lane, tier)
            came += len(wait.users)
        if came:
            took_ms = (now_ms - head.measured_ms) // came
            head.pace_ms = seating.blended_ms(policy, head, took_ms)
            head.paced_ms = head.measured_ms = now_ms

    def _go_on(self, sitting: OpenTable) -> bool:
        """Set the phase for the seated players; returns whether a game starts."""
        head, policy, now_ms = sitting.head, sitting.policy, sitting.now_ms
        seats = head.seats.values()
        if len(seats) < len(policy.seats):
            before, head.phase = head.phase, "waiting"
            head.empty_ms = head.empty_ms or now_ms
            for seat in seats:
                if (before != "waiting" or not seat.due_ms) and not seat.bot:
                    _restart(seat, now_ms, policy.waiting_ms)
            return False
        head.empty_ms = 0
        if not seating.people(head.seats) or now_ms < seating.starts_ms(policy, head):
            return False
        asked_ms = policy.rematch_ms if head.again else policy.ready_ms
        if asked_ms:
            for seat in seats:
                if head.phase == "waiting" or not (seat.ready or seat.due_ms):
                    _restart(seat, now_ms, 0 if seat.bot else asked_ms)
                    seat.ready = seat.bot
            head.phase = "ready"
            if not all(seat.ready for seat in seats):
                return False
        sitting.tx.on_durable(partial(self.count, "table_games_started"))
        head.phase, head.again = "playing", False
        head.game += 1
        head.began_ms = head.paced_ms = now_ms
        for seat in seats:
            _restart(seat, now_ms, 0 if seat.bot else policy.idle_ms)
        return True

    async def _open(self, sitting: OpenTable) -> None:
        """Open a table for waiting players if enough of them fit. Further tables open in later
        commits."""
        head, policy, tx = sitting.head, sitting.policy, sitting.tx
        chosen = await self._group(sitting)
        if chosen is None:
            return
        id_, epoch = self._ids.new(), self._ids.new()
        opened = msgspec.structs.replace(policy, opens=False, ends_empty=True, waitlist_max=0)
        info = msgspec.structs.replace(
            sitting.info, epoch=epoch, policy=opened, created_ms=tx.now_ms, pool=sitting.id
        )
        table = await self.make(tx, id_, info)
        users: list[str] = []
        for key in chosen:
            tier = head.lanes[key].tier
            wait = await sitting.next(key)
            await table.sit(wait.users, wait.lane, tier)
            users += wait.users
        for user in users:
            await sitting.forget(user)
            stand = Stand("", tx.now_ms, opened=id_)
            sitting.put_stand(user, stand, expires_at_ms=tx.now_ms + _OPENED_MS)
        head.opened += 1
        sitting.tell("opened", "last", {"table": id_, "users": users})
        sitting.more = await self._group(sitting) is not None
        await self.settle(table)

    async def _group(self, sitting: OpenTable) -> list[str] | None:
        waits = await self._fronts(sitting)
        return seating.group(sitting.policy, sitting.head.lanes, waits, sitting.now_ms)

    async def _fronts(self, sitting: OpenTable) -> dict[str, list[Wait]]:
        """The first entries of each lane, up to the number of seats."""
        seats = len(sitting.policy.seats)
        return {
            key: [row.value for row in await sitting.line.first(key, lane, seats)]
            for key, lane in sitting.head.lanes.items()
        }

    async def opened(self, sitting: OpenTable, user: str) -> str:
        stand = await sitting.tx.get(stand_key(sitting.id, sitting.head.epoch, user), Stand)
        return "" if stand is None else stand.opened

    async def plays_at(self, sitting: OpenTable, user: str) -> str:
        """The table opened from here at which a user still plays, or an empty string. It prevents a
        repeated request from opening a second table."""
        opened = await self.opened(sitting, user)
        if not opened:
            return ""
        try:
            there = await self.load(sitting.tx, opened, looks=True)
        except NoSuchTable:
            return ""
        return opened if there.seat_of(user) is not None else ""

    # The end of a game.

    async def finish(
        self,
        sitting: OpenTable,
        winners: Sequence[str],
        reason: Reason,
        gone: Mapping[str, Then],
    ) -> Ending:
        """End the running game. Users in `gone` get up in any case."""
        head, policy, table = sitting.head, sitting.policy, sitting.table()
        sitting.tx.on_durable(partial(self.count, "table_games_ended", reason=reason))
        ratings = await self._rate(sitting, winners, reason)
        ending = Ending(
            head.game,
            table.players,
            tuple(winners),
            reason,
            {user: rating.rating for user, rating in ratings.items()},
        )
        await self._tell_referee(sitting, table, ending)
        sitting.tell("table", "ended", msgspec.to_builtins(ending))
        head.unplayed = head.unplayed + 1 if (sitting.tx, sitting.id) in self._beginning else 0
        if head.unplayed >= limits.SEATS_UNPLAYED_MAX:
            head.paused_ms, head.paused_why = sitting.now_ms, _UNPLAYED
        if reason == "result" and not winners:
            head.draws += 1
        elif winners:
            head.draws = 0
        for seat in head.seats.values():
            if winners:
                seat.wins = seat.wins + 1 if seat.user in winners else 0
            if seat.user in ratings:
                seat.tier = seating.tier_of(policy, ratings[seat.user].rating)
            _restart(seat, 0, 0)
        head.phase, head.ended_ms = "waiting", sitting.now_ms
        waits = await self._fronts(sitting) if policy.tiers else None
        ups = seating.get_up(policy, head, winners, gone, sitting.now_ms, waits)
        head.again = not ups
        if ups:
            head.draws = 0
        elif reason == "result" and not winners and policy.draw == "swap":
            head.seats = seating.swapped(policy, head.seats)
        for marker, then in ups:
            await sitting.rise(marker, then)
        await self.settle(sitting)
        return ending

    async def close(self, sitting: OpenTable) -> None:
        """Close the table for all users. A due entry removes its records."""
        tx, id_, head = sitting.tx, sitting.id, sitting.head
        if head.phase == "playing":
            table = sitting.table()
            tx.on_durable(partial(self.count, "table_games_ended", reason="void"))
            await self._tell_referee(sitting, table, Ending(head.game, table.players, (), "void"))
        until_ms = tx.now_ms + limits.SEATS_CLOSED_MS
        sitting.hide_line()
        head.seats, head.lanes, head.spectators = {}, {}, 0
        head.paused_ms, head.paused_why = 0, ""
        head.phase = "closed"
        await sitting.save()
        for key, value in (
            (info_key(id_), sitting.info),
            (head_key(id_), head),
            (listed_key(id_), head.epoch),
        ):
            tx.put(key, value, expires_at_ms=until_ms)
        tx.put(purge_entry(id_, head.epoch, tx.now_ms, self._slots), PURGE_DUE)

    async def _tell_referee(self, sitting: OpenTable, table: Table, ending: Ending) -> None:
        referee = self.referee(sitting)
        if referee is not None:
            await referee.ended(UserTransaction(sitting.tx), table, ending)

    # Ratings.

    def _ladder(self, info: Info) -> str:
        return info.policy.ladder or info.game or "tables"

    async def tier(self, sitting: OpenTable, users: Sequence[str]) -> int:
        """The tier of a user or a party."""
        policy = sitting.policy
        if not policy.tiers:
            return 0
        ladder = self._ladder(sitting.info)
        found = await sitting.tx.get_many([rating_key(ladder, user) for user in users], Rating)
        known = [policy.rating_first if one is None else one.rating for one in found]
        return seating.tier_of(policy, sum(known) // len(known))

    async def _rate(
        self, sitting: OpenTable, winners: Sequence[str], reason: Reason
    ) -> dict[str, Rating]:
        """Update the ratings of the players if the table is rated."""
        policy, tx = sitting.policy, sitting.tx
        users = [seat.user for seat in seating.people(sitting.head.seats).values()]
        if not policy.rated or reason == "void" or len(users) < 2:
            return {}
        ladder = self._ladder(sitting.info)
        found = await tx.get_many([rating_key(ladder, user) for user in users], Rating)
        before = {
            user: Rating(policy.rating_first) if known is None else known
            for user, known in zip(users, found, strict=True)
        }
        after = rated(before, winners, policy.rating_step, tx.now_ms)
        for user, rating in after.items():
            if before[user].games and before[user].rating != rating.rating:
                tx.delete(ladder_key(ladder, before[user].rating, user))
            tx.put(rating_key(ladder, user), rating)
            tx.put(ladder_key(ladder, rating.rating, user), rating)
        return after

    # Due entries.

    async def tick(self, tx: Transaction, entry: Key) -> None:
        """Process the due entry of a table."""
        due_ms, id_, epoch, _ = keys.split(entry[1])
        tx.delete(entry)
        sitting = await self.current(tx, id_, epoch)
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
            await self.settle(sitting)

    async def _forfeit(self, sitting: OpenTable, late: list[str]) -> None:
        """Players who are late lose; if all are late, the game does not count."""
        gone: dict[str, Then] = {}
        reason: Reason = "idle"
        for seat in sitting.head.seats.values():
            if seat.user in late:
                lost = 0 < seat.away_ms <= sitting.now_ms
                reason = "lost" if lost else reason
                # Otherwise games of absent players would begin and end endlessly.
                seat.idle += 1
                away = lost or seat.idle >= limits.SEATS_IDLE_MAX
                gone[seat.user] = "leave" if away else sitting.policy.idle
        winners = [s.user for s in sitting.head.seats.values() if s.user not in late]
        await self.finish(sitting, winners, reason if winners else "void", gone)

    def _let_bots_sit(self, sitting: OpenTable) -> None:
        head, policy = sitting.head, sitting.policy
        there = {seat.user for seat in head.seats.values()}
        names = [name for name in policy.bots if name not in there]
        while len(head.seats) < len(policy.seats):
            sitting.sit_bot(names.pop(0))

    async def purge(self, tx: Transaction, entry: Key) -> None:
        """Remove some records of a closed table and schedule the rest; at the end, remove its live
        view."""
        _, id_, epoch, _ = keys.split(entry[1])
        tx.delete(entry)
        left = limits.SEATS_PURGE_RECORDS
        for make in (stands_partition, heartbeat_partition, lane_partition):
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

    async def current(self, tx: Transaction, id_: str, epoch: str) -> OpenTable | None:
        try:
            sitting = await self.load(tx, id_)
        except NoSuchTable:
            return None
        return sitting if sitting.head.epoch == epoch else None


def _restart(seat: Seat, now_ms: int, clock_ms: int) -> None:
    """Restart the clock of a seat; 0 means no limit."""
    seat.due_ms = now_ms + clock_ms if clock_ms else 0
    seat.ready = seat.turn = seat.warned = False


def _not_counted(name: str, **labels: str) -> None:
    """The default of `Rounds.count`."""
