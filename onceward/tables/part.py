"""Actions of players at tables, as functions of a transaction."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, ClassVar

import msgspec

from onceward import keys, limits
from onceward.api.tables import Ending, Leader, Place, Policy, Rating, Table, Waiter
from onceward.errors import BadInput, KeyReused, NoSuchTable
from onceward.ids import Ids
from onceward.json_values import encode
from onceward.keys import Key
from onceward.store.savepoint import whole
from onceward.store.transaction import Transaction
from onceward.store.user_records import UserTransaction, joins
from onceward.tables import rules as seating
from onceward.tables.policy import admit, from_seconds, names_fit, policy_of
from onceward.tables.protocols import Board, Referee
from onceward.tables.records import (
    TABLES,
    WAIT_DUE,
    Head,
    Info,
    Stand,
    admit_ladder,
    admit_move_key,
    admit_user,
    head_key,
    heartbeat_key,
    info_key,
    ladder_partition,
    rating_key,
    stand_key,
)
from onceward.tables.rounds import Rounds
from onceward.tables.table import OpenTable
from onceward.tables.waitlist import number_of, read_waiter_key


class Seats:
    """The tables of one database, within transactions.

    All methods raise `NoSuchTable`; methods that change a table raise `table_closed` for a closed
    one. A method that raises has changed nothing, so the transaction can continue.
    """

    rounds_type: ClassVar[type[Rounds]] = Rounds

    def __init__(self, ids: Ids, slots: int, board: Board | None = None) -> None:
        self.referees: dict[str, Referee] = {}
        """The referees, by the names of their games."""
        self._ids = ids
        self._rounds = self.rounds_type(ids, slots, self.referees, board)

    def count_with(self, count: Callable[..., None]) -> None:
        """Count durable events with `count(name, **labels)`."""
        self._rounds.count = count

    # Tables as a whole.

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
        """Create a table; without an id it gets a new one.

        Args:
            policy: The rules of the table: a mapping with the names of `Policy` and durations in
                seconds (`turn_s`), or a `Policy`. Default: those of the kind `classic`.
            game: Name of the referee. If the referee names its seats, the table has these seats.

        Raises `BadInput`: `table_exists`, `bad_policy`, `no_game` for an unknown game.
        """
        id_ = id_ or self._ids.new()
        seats = self._seats_of(game)
        if not isinstance(policy, Policy):
            policy = self.policy_of(game, from_seconds(policy))
        admit(policy)
        if seats and policy.seats != seats:
            raise BadInput(
                f"{game} has the seats {', '.join(seats)}; use these or leave `seats` out",
                code="bad_policy",
            )
        if by != "":
            admit_user(by)
        size = len(encode(meta or {}, ("table", "meta")))
        if type(meta or {}) is not dict or size > limits.SEATS_META_BYTES_MAX:
            raise BadInput(
                "the metadata of a table must be an object of at most "
                f"{limits.SEATS_META_BYTES_MAX} bytes, not {size} bytes",
                code="value_too_large",
            )
        known, head = await tx.get(info_key(id_), Info), await tx.get(head_key(id_), Head)
        if known is not None and head is not None and head.phase != "closed":
            raise BadInput(f"table {id_!r} exists; choose another id", code="table_exists", id=id_)
        info = Info(self._ids.new(), policy, tx.now_ms, game, by, meta or {})
        sitting = await self._rounds.make(tx, id_, info)
        await sitting.save()
        return sitting.table()

    def policy_of(self, game: str, given: Mapping[str, Any]) -> Policy:
        """Return the policy of a table for a game, from its JSON members. Raises `bad_policy`,
        `no_game`."""
        seats = self._seats_of(game)
        return policy_of({**({"seats": seats} if seats else {}), **given})

    def _seats_of(self, game: str) -> tuple[str, ...]:
        if type(game) is not str or (game and game not in self.referees):
            raise BadInput(
                f"game {str(game)[:100]!r} is not declared; use app.game", code="no_game"
            )
        seats: tuple[str, ...] = getattr(self.referees.get(game), "seats", ())
        return seats

    @joins
    async def get(self, tx: Transaction, id_: str) -> Table:
        """Return a table. A closed table stays readable for a day."""
        return (await self._rounds.load(tx, id_, looks=True)).table()

    @joins
    async def find(
        self, tx: Transaction, *, prefix: str = "", after: str = "", limit: int = 50
    ) -> list[Table]:
        """Return tables whose ids begin with `prefix`, ordered by id, starting after `after`."""
        if type(limit) is not int or not 0 < limit <= limits.PAGE_JOBS:
            raise BadInput(f"limit must be 1 to {limits.PAGE_JOBS}, not {limit}")
        for text in (prefix, after):
            if text and not names_fit(text, limits.SEATS_ID_BYTES_MAX):
                raise BadInput(
                    f"{str(text)[:100]!r} begins no table id; use another", code="bad_name"
                )
        start = keys.join(prefix) if prefix else ""
        end = start + "\U0010ffff" if prefix else None
        if after:
            start = max(start, keys.after(keys.join(after)))
        rows = await tx.scan(TABLES, str, start=start, end=end, limit=limit)
        ids = [keys.split(row.key[1])[0] for row in rows]
        await tx.fetch([key for id_ in ids for key in (info_key(id_), head_key(id_))])
        found: list[Table] = []
        for id_ in ids:
            try:
                found.append(await self.get(tx, id_))
            except NoSuchTable:
                pass  # the table has just expired
        return found

    @joins
    async def pause(self, tx: Transaction, id_: str) -> Table:
        """Stop all clocks, and start no games and seat no players until `resume`. Idempotent."""
        sitting = await self._rounds.load(tx, id_)
        sitting.must_be_open()
        if not sitting.head.paused_ms:
            sitting.head.paused_ms = tx.now_ms
            await sitting.save()
        return sitting.table()

    @joins
    @whole
    async def resume(self, tx: Transaction, id_: str) -> Table:
        """Resume a paused table. Idempotent."""
        sitting = await self._rounds.load(tx, id_)
        sitting.must_be_open()
        if sitting.head.paused_ms:
            seating.shift(sitting.head, tx.now_ms - sitting.head.paused_ms)
            sitting.head.paused_ms, sitting.head.paused_why, sitting.head.unplayed = 0, "", 0
            await self._rounds.settle(sitting)
        return await self.get(tx, id_)

    @joins
    @whole
    async def close(self, tx: Transaction, id_: str) -> Table:
        """Close the table immediately; a running game does not count. Idempotent."""
        sitting = await self._rounds.load(tx, id_)
        if sitting.head.phase != "closed":
            await self._rounds.close(sitting)
        return sitting.table()

    @joins
    async def rating(self, tx: Transaction, ladder: str, user: str) -> Rating | None:
        """Return the rating of a user, or None."""
        admit_user(user)
        admit_ladder(ladder)
        return await tx.get(rating_key(ladder, user), Rating)

    @joins
    async def leaders(
        self,
        tx: Transaction,
        ladder: str,
        *,
        limit: int = 100,
        after: tuple[int, str] | None = None,
    ) -> list[Leader]:
        """Return the players by rating, highest first, starting after a rating and user."""
        admit_ladder(ladder)
        if type(limit) is not int or not 0 < limit <= limits.LIST_MAX:
            raise BadInput(f"limit must be 1 to {limits.LIST_MAX}, not {limit}")
        start = ""
        if after is not None:
            try:
                rating, user = after
            except (TypeError, ValueError):
                told = "after must be a pair of rating and user"
                raise BadInput(told, code="bad_value") from None
            admit_user(user)
            if type(rating) is not int or not 0 <= rating <= limits.SEATS_RATING_MAX:
                raise BadInput(
                    f"a rating must be 0 to {limits.SEATS_RATING_MAX}, not {str(rating)[:50]}",
                    code="bad_value",
                )
            start = keys.after(keys.join(limits.SEATS_RATING_MAX - rating, user))
        rows = await tx.scan(ladder_partition(ladder), Rating, start=start, limit=limit)
        return [
            Leader(keys.split(row.key[1])[1], one.rating, one.games, one.won, one.drawn)
            for row in rows
            for one in [row.value]
        ]

    # Actions of players.

    @joins
    @whole
    async def join(
        self,
        tx: Transaction,
        id_: str,
        user: str,
        *,
        lane: str = "",
        party: Sequence[str] = (),
    ) -> Place:
        """Take the first free seat, or the last place of a lane.

        Users who are already at the table, or who play at a table that it opened, keep their place.
        A party sits down or waits together. Raises `BadInput`; the code is `table_full` if the
        waitlist is full.
        """
        if isinstance(party, str) or not isinstance(party, Collection):
            raise BadInput(f"a party must be a list of names, not {type(party).__name__}")
        users = [user, *party]
        for name in users:
            admit_user(name)
        sitting = await self._rounds.load(tx, id_)
        sitting.must_be_open()
        policy = sitting.policy
        lane = lane or policy.lanes[-1]
        if lane not in policy.lanes:
            lanes = ", ".join(policy.lanes)
            raise BadInput(f"unknown lane {str(lane)[:100]!r}; use one of {lanes}")
        if len(users) > policy.party_max or len(set(users)) < len(users):
            raise BadInput(
                f"a party must have 1 to {policy.party_max} different users, not {str(users)[:100]}"
            )
        if policy.bot_ms and not set(users).isdisjoint(policy.bots):
            raise BadInput(
                f"the names of bots are reserved here: {', '.join(policy.bots)}; use other names",
                code="bad_name",
            )
        stand = await sitting.stand(user)
        if stand is not None and stand.role != "watching":
            await self._is_here(sitting, user, acts=True)
            return await self._place(sitting, user, stand)
        if stand is None and await self._rounds.plays_at(sitting, user):
            return await self._place(sitting, user, None)
        await self._admit_party(sitting, users)
        tier = await self._rounds.tier(sitting, users)
        if self._sits_at_once(sitting, len(users), tier):
            await sitting.sit(users, lane, tier)
        else:
            await sitting.stand_back(users, lane, tier)
        await self._rounds.settle(sitting)
        place = await self._placed(sitting, user)
        if place.role == "waiting" and place.waiting > policy.waitlist_max:
            raise BadInput(
                f"the waitlist of {id_!r} is full ({policy.waitlist_max} users); retry later",
                code="table_full",
            )
        tx.on_durable(partial(self._rounds.count, "table_joins", role=place.role))
        return place

    async def _admit_party(self, sitting: OpenTable, users: Sequence[str]) -> None:
        for name in users:
            known = await sitting.stand(name)
            if known is None:
                opened = await self._rounds.plays_at(sitting, name)
                if opened:
                    raise BadInput(
                        f"{name!r} already plays at table {opened!r}, opened from here; end "
                        "it first"
                    )
                continue
            if known.role != "watching":
                raise BadInput(
                    f"{name!r} is already {known.role} at table {sitting.id!r}; leave it first"
                )
            sitting.head.spectators -= 1

    def _sits_at_once(self, sitting: OpenTable, size: int, tier: int) -> bool:
        """Whether enough seats are free and the waitlist has no earlier users."""
        head, policy = sitting.head, sitting.policy
        if sitting.rests or policy.opens or head.phase == "playing" or head.waiting:
            return False
        seated = seating.people(head.seats).values()
        free = len(policy.seats) - len(seated)
        return size <= free and all(seat.tier == tier for seat in seated)

    @joins
    @whole
    async def leave(self, tx: Transaction, id_: str, user: str) -> Place:
        """Leave the seat or waitlist, together with the waiting party. Idempotent.

        A player who leaves during a game loses it.
        """
        admit_user(user)
        sitting = await self._rounds.load(tx, id_)
        sitting.must_be_open()
        stand = await sitting.stand(user)
        if stand is None:
            return await self._place(sitting, user, None)
        if stand.role == "watching":
            sitting.head.spectators -= 1
            await sitting.forget(user)
            await sitting.save()
        elif stand.role == "waiting":
            wait = await sitting.unline(stand.lane, stand.number)
            for name in wait.users:
                await sitting.forget(name)
            await self._rounds.settle(sitting)
        elif sitting.head.phase == "playing":
            others = [s.user for s in sitting.head.seats.values() if s.user != user]
            await self._rounds.finish(sitting, others, "left", {user: "leave"})
        else:
            await sitting.rise(self._marker(sitting, user), "leave")
            await self._rounds.settle(sitting)
        return await self._placed(sitting, user)

    @joins
    @whole
    async def watch(self, tx: Transaction, id_: str, user: str) -> Place:
        """Become a spectator. Users with a seat or a place in the waitlist keep it. Raises
        `table_full`."""
        admit_user(user)
        sitting = await self._rounds.load(tx, id_)
        sitting.must_be_open()
        stand = await sitting.stand(user)
        if stand is None:
            most = sitting.policy.spectators_max
            if sitting.head.spectators >= most:
                raise BadInput(
                    f"{id_!r} has the maximum of {most} spectators; retry later", code="table_full"
                )
            await sitting.watch(user)
            await sitting.save()
        return await self._placed(sitting, user)

    @joins
    @whole
    async def ready(self, tx: Transaction, id_: str, user: str) -> Place:
        """Confirm that the user is ready, or wants to play again. The game starts when all have
        confirmed.

        It has no effect while the table asks for no confirmation. Raises `not_seated`.
        """
        sitting = await self._seated(tx, id_, user)
        seat = sitting.seat_of(user)
        assert seat is not None
        if sitting.head.phase == "ready" and not seat.ready:
            seat.ready, seat.due_ms, seat.away_ms = True, 0, 0
            await self._rounds.settle(sitting)
        else:
            await self._is_here(sitting, user)
        return await self.place(tx, id_, user)

    @joins
    @whole
    async def move(self, tx: Transaction, id_: str, user: str, move: Any, *, key: str = "") -> Any:
        """Pass a move of a seated user to the referee; returns the referee's response.

        With a key the call is idempotent: repeating the last move returns the same response. Raises
        `not_seated`, `no_game`, `not_your_turn`, `out_of_time`, `table_paused`, `key_reused` if the
        key was used for another move, and errors of the referee.
        """
        admit_user(user)
        if key:
            admit_move_key(key)
            known = await self._rounds.load(tx, id_, looks=True)
            stand = await known.stand(user)
            if stand is not None and stand.key == key:
                if stand.made != _digest(move):
                    raise KeyReused(f"the key {key!r} was used for another move; use a new key")
                kind = getattr(self.referees.get(known.info.game), "answers", Any)
                return msgspec.convert(stand.answer, kind)
        sitting = await self._seated(tx, id_, user)
        self._must_play(sitting)
        if sitting.head.paused_ms:
            raise BadInput(f"table {id_!r} is paused; resume it first", code="table_paused")
        seat = sitting.seat_of(user)
        assert seat is not None
        if not seat.turn and any(other.turn for other in sitting.head.seats.values()):
            turns = [name for name, other in sitting.head.seats.items() if other.turn]
            raise BadInput(
                f"it is the turn of {', '.join(turns)}; wait for yours", code="not_your_turn"
            )
        if seat.turn and 0 < seat.due_ms <= sitting.now_ms:
            raise BadInput(
                "the time for this move has run out; wait for your next turn", code="out_of_time"
            )
        referee = self._rounds.referee(sitting)
        if referee is None:
            raise BadInput(
                f"table {id_!r} has no game with moves; declare one with app.game", code="no_game"
            )
        await self._is_here(sitting, user, acts=True)
        answer = await referee.move(UserTransaction(tx), sitting.table(), user, move)
        if key:
            after = await self._rounds.load(tx, id_)
            stand = await after.stand(user)
            if stand is not None:
                stand.key, stand.made, stand.answer = key, _digest(move), answer
                after.put_stand(user, stand)
        return answer

    @joins
    @whole
    async def turn(
        self, tx: Transaction, id_: str, users: Collection[str], *, keep: bool = False
    ) -> None:
        """Set the users whose turn it is, and start their clocks. For referees.

        With `keep`, users whose turn it already was keep their remaining time.
        """
        if isinstance(users, str) or not isinstance(users, Collection):
            raise BadInput(f"users must be a list of names, not {type(users).__name__}")
        names = list(users)
        sitting = await self._rounds.load(tx, id_)
        self._must_play(sitting)
        for seat in sitting.head.seats.values():
            waits = seat.user in names
            if not (keep and waits and seat.turn):
                clock_ms = 0 if seat.bot or not waits else sitting.policy.turn_ms
                seat.due_ms = sitting.clock_ms + clock_ms if clock_ms else 0
                seat.warned = False
            seat.turn = waits
        await sitting.save()

    @joins
    @whole
    async def result(
        self, tx: Transaction, id_: str, winners: Sequence[str], *, game: int | None = None
    ) -> Ending:
        """End the running game. `winners` win and all others lose; without winners it is a draw.

        Losers get up, waiting players sit down, ratings change and the next game starts, all in
        this commit. With `game`, only that game is ended. Raises `no_game`, `other_game`,
        `not_seated`. For referees and servers; clients cannot report results.
        """
        if isinstance(winners, str) or not isinstance(winners, Collection):
            raise BadInput(f"winners must be a list of names, not {type(winners).__name__}")
        sitting = await self._rounds.load(tx, id_)
        sitting.must_be_open()
        if game is not None and game != sitting.head.game:
            raise BadInput(
                f"game {sitting.head.game} is running at {id_!r}, not {game}; name that one",
                code="other_game",
            )
        self._must_play(sitting)
        for user in winners:
            if sitting.seat_of(user) is None:
                raise BadInput(
                    f"{str(user)[:99]!r} is no player; name one at {id_!r}", code="not_seated"
                )
        return await self._rounds.finish(sitting, winners, "result", {})

    @joins
    async def draw(self, tx: Transaction, id_: str, *, game: int | None = None) -> Ending:
        """End the running game as a draw."""
        return await self.result(tx, id_, (), game=game)

    # Connections and heartbeats.

    @joins
    async def away(self, tx: Transaction, id_: str, user: str) -> Place:
        """Record a lost connection. The seat is kept for the grace period. Idempotent."""
        admit_user(user)
        sitting = await self._rounds.load(tx, id_)
        seat = sitting.seat_of(user)
        grace_ms = sitting.policy.grace_ms
        if seat is not None and not seat.bot and not seat.away_ms and grace_ms:
            seat.away_ms = sitting.clock_ms + grace_ms
            await sitting.save()
        return await self.place(tx, id_, user)

    @joins
    async def back(self, tx: Transaction, id_: str, user: str) -> Place:
        """Record a restored connection, which also counts as a heartbeat."""
        await self.heartbeat(tx, id_, user)
        return await self.place(tx, id_, user)

    @joins
    async def heartbeat(self, tx: Transaction, id_: str, user: str) -> None:
        """Record a heartbeat. For waiting users it writes only their own record; for players it
        does not count as a move."""
        admit_user(user)
        info = await self._rounds.info(tx, id_)
        stand = await tx.get(stand_key(id_, info.epoch, user), Stand)
        if stand is None or not stand.role:
            return
        if stand.role == "seated":
            await self._is_here(await self._rounds.load(tx, id_), user)
        elif info.policy.waiting_ms:
            kept_ms = 2 * info.policy.waiting_ms
            key = heartbeat_key(id_, info.epoch, user)
            tx.put(key, tx.now_ms, expires_at_ms=tx.now_ms + kept_ms)

    async def _is_here(self, sitting: OpenTable, user: str, *, acts: bool = False) -> None:
        """Record that a user is connected. For a seated user it is a heartbeat; `acts` resets
        idleness."""
        head, policy, now_ms = sitting.head, sitting.policy, sitting.now_ms
        seat = sitting.seat_of(user)
        if seat is None or seat.bot:
            return
        changed, seat.away_ms = seat.away_ms > 0, 0
        if acts and seat.idle:
            changed, seat.idle = True, 0
        # Written only after a share of the time has passed, not with every heartbeat.
        fresh_ms = now_ms + policy.waiting_ms - policy.waiting_ms // limits.SEATS_SIGNS
        runs = not head.paused_ms
        if runs and head.phase == "waiting" and 0 < seat.due_ms < fresh_ms:
            changed, seat.due_ms = True, now_ms + policy.waiting_ms
        turns = any(other.turn for other in head.seats.values())
        if acts and runs and head.phase == "playing" and seat.due_ms and not turns:
            changed, seat.due_ms, seat.warned = True, now_ms + policy.idle_ms, False
        if changed:
            await sitting.save()

    async def tick(self, tx: Transaction, entry: Key) -> None:
        """Process the due entry of a table."""
        await self._rounds.tick(tx, entry)

    async def purge(self, tx: Transaction, entry: Key) -> None:
        """Remove some records of a closed table."""
        await self._rounds.purge(tx, entry)

    async def expire(self, tx: Transaction, entry: Key) -> None:
        """Check for a heartbeat of a waiting user or spectator, and remove those without one."""
        due_ms, id_, epoch, user, _ = keys.split(entry[1])
        tx.delete(entry)
        sitting = await self._rounds.current(tx, id_, epoch)
        stand = await tx.get(stand_key(id_, epoch, user), Stand)
        if sitting is None or sitting.head.phase == "closed":
            return
        if stand is None or stand.due_ms != int(due_ms):
            return
        waiting_ms = sitting.policy.waiting_ms
        if stand.role not in ("waiting", "watching"):
            stand.due_ms = 0
            sitting.put_stand(user, stand)
            return
        seen_ms = await tx.get(heartbeat_key(id_, epoch, user), int) or 0
        if sitting.head.paused_ms:
            seen_ms = tx.now_ms
        stand.due_ms = max(seen_ms, stand.since_ms) + waiting_ms
        if stand.due_ms > tx.now_ms:
            tx.put(sitting.entry(user, stand.due_ms), WAIT_DUE)
            sitting.put_stand(user, stand)
        else:
            await self.leave(tx, id_, user)

    def read_to_expire(self, entry: Key) -> list[Key]:
        _, id_, epoch, user, _ = keys.split(entry[1])
        return [stand_key(id_, epoch, user), heartbeat_key(id_, epoch, user)]

    async def fetch(self, tx: Transaction, users: Sequence[tuple[str, str]]) -> None:
        """Prefetch the records of calls for these users with one read.

        Each entry is a user with its table; the table is the same for all. Invalid names and
        missing tables are left to the calls.
        """
        id_ = users[0][0]
        info = await tx.get(info_key(id_), Info, cached=True)
        if info is not None:
            known = [user for _, user in users if names_fit(user, limits.SEATS_USER_BYTES_MAX)]
            await tx.fetch([stand_key(id_, info.epoch, user) for user in known])

    # Queries.

    @joins
    async def place(self, tx: Transaction, id_: str, user: str) -> Place:
        """Return the exact place of a user at a table. It costs a few reads."""
        admit_user(user)
        sitting = await self._rounds.load(tx, id_, looks=True)
        return await self._place(sitting, user, await sitting.stand(user))

    @joins
    async def waitlist(
        self, tx: Transaction, id_: str, *, after: str = "", limit: int = 50, public: bool = False
    ) -> list[Waiter]:
        """Return the users on the waitlist, by lane.

        Lanes are ordered by priority, then by lower tier, then by smaller party; a lane is first
        in, first out. `after` is the `waiter_key` of the last entry of the previous page. With
        `public`, names are omitted where the policy hides them. Raises `bad_value`.
        """
        if type(limit) is not int or not 0 < limit <= limits.LIST_MAX:
            raise BadInput(f"limit must be 1 to {limits.LIST_MAX}, not {limit}")
        sitting = await self._rounds.load(tx, id_, looks=True)
        lanes = sitting.head.lanes

        def rank(key: str) -> tuple[int, int, int]:
            return lanes[key].priority, lanes[key].tier, lanes[key].size

        last, start = read_waiter_key(after)
        if last and last not in lanes:
            raise BadInput(
                f"unknown lane {last[:100]!r} in after; use the cursor of the last page",
                code="bad_value",
            )
        found: list[Waiter] = []
        for key in sorted(lanes, key=rank):
            if len(found) < limit and (not last or rank(key) >= rank(last)):
                first = start if key == last else 0
                found += await self._waiters(sitting, key, limit - len(found), first)
        if public and not sitting.policy.waitlist_names:
            for waiter in found:
                waiter.users = ()
        return found

    async def _waiters(self, sitting: OpenTable, key: str, most: int, start: int) -> list[Waiter]:
        lane = sitting.head.lanes[key]
        rows = await sitting.line.first(key, lane, most, start)
        if not rows:
            return []
        position = await sitting.line.position(key, lane, number_of(rows[0]))
        return [
            Waiter(key, number_of(row), position + at, wait.since_ms, len(wait.users), wait.users)
            for at, row in enumerate(rows)
            for wait in [row.value]
        ]

    async def _placed(self, sitting: OpenTable, user: str) -> Place:
        """Return the place of a user after the changes of this call."""
        if sitting.judged:
            sitting = await self._rounds.load(sitting.tx, sitting.id, looks=True)
        return await self._place(sitting, user, await sitting.stand(user))

    async def _place(self, sitting: OpenTable, user: str, stand: Stand | None) -> Place:
        head = sitting.head
        place = Place(sitting.id, user, "", head.phase, head.game, waiting=head.waiting)
        if head.phase == "closed":
            return place
        if stand is None:
            place.opened = await self._rounds.opened(sitting, user)
            return place
        place.role = stand.role
        if stand.role == "seated":
            place.marker = self._marker(sitting, user)
        elif stand.role == "waiting":
            lane = head.lanes[stand.lane]
            place.lane, place.number, place.went = stand.lane, stand.number, lane.went
            place.position = await sitting.line.position(stand.lane, lane, stand.number)
            place.ahead = (place.position - 1) * lane.size
            others = [other for key, other in head.lanes.items() if key != stand.lane]
            if any(other.waiting for other in others):
                order = (await sitting.line.get(stand.lane, stand.number)).order
                for other in others:
                    place.ahead += seating.before(lane, other, order, head.order)
            place.wait_ms = seating.estimate_ms(sitting.policy, head, place.ahead, sitting.clock_ms)
        return place

    def _marker(self, sitting: OpenTable, user: str) -> str:
        return next(m for m, seat in sitting.head.seats.items() if seat.user == user)

    async def _seated(self, tx: Transaction, id_: str, user: str) -> OpenTable:
        admit_user(user)
        sitting = await self._rounds.load(tx, id_)
        sitting.must_be_open()
        seat = sitting.seat_of(user)
        if seat is None or seat.bot:
            raise BadInput(f"{user!r} has no seat at {id_!r}; join first", code="not_seated")
        return sitting

    def _must_play(self, sitting: OpenTable) -> None:
        if sitting.head.phase != "playing":
            raise BadInput(f"no game is running at {sitting.id!r}; wait for it", code="no_game")


def _digest(move: Any) -> str:
    """A digest of a move as JSON."""
    return blake2b(encode(move, ("move", "value"), order="sorted"), digest_size=16).hexdigest()
