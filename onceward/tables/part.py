"""Actions of players at tables, as functions of a transaction."""

from collections.abc import Collection, Mapping, Sequence
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
from onceward.tables.waitlist import number_of


class Seats:
    """The tables of one database. All raise `NoSuchTable`; those that change something raise
    `table_closed` for a closed one. What raises has changed nothing, also for who goes on."""

    rounds_type: ClassVar[type[Rounds]] = Rounds

    def __init__(self, ids: Ids, slots: int, board: Board | None = None) -> None:
        self.referees: dict[str, Referee] = {}
        """By the names of their games."""
        self._ids = ids
        self._rounds = self.rounds_type(ids, slots, self.referees, board)

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
        sitting = await self._rounds.make(tx, id_, info)
        await sitting.save()
        return sitting.table()

    def policy_of(self, game: str, given: Mapping[str, Any]) -> Policy:
        """The policy of a table for a game, from its members as JSON has them. Raises
        `bad_policy`, `no_game`."""
        seats = self._seats_of(game)
        return policy_of({**({"seats": seats} if seats else {}), **given})

    def _seats_of(self, game: str) -> tuple[str, ...]:
        if type(game) is not str or (game and game not in self.referees):
            raise BadInput(f"nothing here knows the game {str(game)[:100]!r}", code="no_game")
        seats: tuple[str, ...] = getattr(self.referees.get(game), "seats", ())
        return seats

    @joins
    async def get(self, tx: Transaction, id_: str) -> Table:
        """A table as it is; a closed one is known for a day."""
        return (await self._rounds.load(tx, id_, looks=True)).table()

    @joins
    async def find(
        self, tx: Transaction, *, prefix: str = "", after: str = "", limit: int = 50
    ) -> list[Table]:
        """Tables whose ids begin with `prefix`, in the order of their ids, from behind `after`
        on."""
        if type(limit) is not int or not 0 < limit <= limits.PAGE_JOBS:
            raise BadInput(f"a page has 1 to {limits.PAGE_JOBS} tables, not {limit}")
        for text in (prefix, after):
            if text and not names_fit(text, limits.SEATS_ID_BYTES_MAX):
                raise BadInput("this cannot be part of the id of a table", code="bad_name")
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
                pass  # it has just expired
        return found

    @joins
    async def pause(self, tx: Transaction, id_: str) -> Table:
        """Stop all clocks, begin no game and seat nobody, until `resume`; twice is once."""
        sitting = await self._rounds.load(tx, id_)
        sitting.must_be_open()
        if not sitting.head.paused_ms:
            sitting.head.paused_ms = tx.now_ms
            await sitting.save()
        return sitting.table()

    @joins
    @whole
    async def resume(self, tx: Transaction, id_: str) -> Table:
        """Go on where it was paused; twice is once."""
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
        """End it for everyone, at once; a game that is on does not count. Twice is once."""
        sitting = await self._rounds.load(tx, id_)
        if sitting.head.phase != "closed":
            await self._rounds.close(sitting)
        return sitting.table()

    @joins
    async def rating(self, tx: Transaction, ladder: str, user: str) -> Rating | None:
        """How well someone plays, or None if it is not known."""
        admit_user(user)
        _admit_ladder(ladder)
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
        """The best players, the best one first, from behind a rating and user on."""
        _admit_ladder(ladder)
        if type(limit) is not int or not 0 < limit <= limits.LIST_MAX:
            raise BadInput(f"a list has 1 to {limits.LIST_MAX} entries, not {limit}")
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
        rows = await tx.scan(ladder_partition(ladder), Rating, start=start, limit=limit)
        return [
            Leader(keys.split(row.key[1])[1], one.rating, one.games, one.won, one.drawn)
            for row in rows
            for one in [row.value]
        ]

    # What people do.

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
        """Take the first free seat, or stand at the back of a lane; who is there stays where it
        is, and so does who plays at a table that was opened from here. With a party all sit down
        at the same time or wait together. Raises `BadInput`, with the code `table_full` if as
        many wait as may."""
        if isinstance(party, str) or not isinstance(party, Collection):
            raise BadInput("a party is a list of names")
        users = [user, *party]
        for name in users:
            admit_user(name)
        sitting = await self._rounds.load(tx, id_)
        sitting.must_be_open()
        policy = sitting.policy
        lane = lane or policy.lanes[-1]
        if lane not in policy.lanes:
            lanes = ", ".join(policy.lanes)
            raise BadInput(f"the lanes here are {lanes}, not {str(lane)[:100]!r}")
        if len(users) > policy.party_max or len(set(users)) < len(users):
            raise BadInput(f"a party is of 1 to {policy.party_max} different people here")
        if policy.bot_ms and not set(users).isdisjoint(policy.bots):
            raise BadInput(f"bots are called {', '.join(policy.bots)} here", code="bad_name")
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
                f"{policy.waitlist_max} wait at {id_!r}, and no more may", code="table_full"
            )
        return place

    async def _admit_party(self, sitting: OpenTable, users: Sequence[str]) -> None:
        for name in users:
            known = await sitting.stand(name)
            if known is None:
                opened = await self._rounds.plays_at(sitting, name)
                if opened:
                    raise BadInput(f"{name!r} is at the table {opened!r}, which was opened here")
                continue
            if known.role != "watching":
                raise BadInput(f"{name!r} is {known.role} at the table {sitting.id!r} already")
            sitting.head.spectators -= 1

    def _sits_at_once(self, sitting: OpenTable, size: int, tier: int) -> bool:
        """Whether there is a seat, and nobody who came before."""
        head, policy = sitting.head, sitting.policy
        if sitting.rests or policy.opens or head.phase == "playing" or head.waiting:
            return False
        seated = seating.people(head.seats).values()
        free = len(policy.seats) - len(seated)
        return size <= free and all(seat.tier == tier for seat in seated)

    @joins
    @whole
    async def leave(self, tx: Transaction, id_: str, user: str) -> Place:
        """Get up, or out of the line, with all of one's party there; who is not there stays away.
        Who leaves a game has lost it."""
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
        """Be a spectator; who sits or waits there stays where it is. Raises `table_full`."""
        admit_user(user)
        sitting = await self._rounds.load(tx, id_)
        sitting.must_be_open()
        stand = await sitting.stand(user)
        if stand is None:
            most = sitting.policy.spectators_max
            if sitting.head.spectators >= most:
                raise BadInput(f"{most} watch {id_!r}, and no more may", code="table_full")
            await sitting.watch(user)
            await sitting.save()
        return await self._placed(sitting, user)

    @joins
    @whole
    async def ready(self, tx: Transaction, id_: str, user: str) -> Place:
        """Say that one is ready, or wants to play again. When all are, the game begins. It means
        nothing while nobody is asked. Raises `not_seated`."""
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
        """Let the referee judge a move of someone who is seated; returns its answer. With a key
        it is made once: the last one again gets the same answer. Raises `not_seated`, `no_game`,
        `not_your_turn`, `out_of_time`, `table_paused`, `key_reused` if the key was that of
        another move, and what the referee raises."""
        admit_user(user)
        if key:
            admit_move_key(key)
            known = await self._rounds.load(tx, id_, looks=True)
            stand = await known.stand(user)
            if stand is not None and stand.key == key:
                if stand.made != _digest(move):
                    raise KeyReused(f"the key {key!r} came with another move before; use a new key")
                kind = getattr(self.referees.get(known.info.game), "answers", Any)
                return msgspec.convert(stand.answer, kind)
        sitting = await self._seated(tx, id_, user)
        self._must_play(sitting)
        if sitting.head.paused_ms:
            raise BadInput(f"the table {id_!r} is paused", code="table_paused")
        seat = sitting.seat_of(user)
        assert seat is not None
        if not seat.turn and any(other.turn for other in sitting.head.seats.values()):
            raise BadInput("it is someone else's turn", code="not_your_turn")
        if seat.turn and 0 < seat.due_ms <= sitting.now_ms:
            raise BadInput("the time for this move is over", code="out_of_time")
        referee = self._rounds.referee(sitting)
        if referee is None:
            raise BadInput(f"the table {id_!r} has no game with moves", code="no_game")
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
        """Say for whom the game waits. Their clocks run from now on; with `keep`, those of them
        who were to move already go on with the time they have left. For referees."""
        if isinstance(users, str) or not isinstance(users, Collection):
            raise BadInput("those whose turn it is are a list of names")
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
        """End the game that is on: these have won, and the others have lost; nobody, and it is a
        draw. Losers get up, others sit down, ratings change, and the next game begins, all with
        this commit. With `game` it must be that one. Raises `no_game`, `other_game`,
        `not_seated`. For referees and servers: no client says who has lost."""
        if isinstance(winners, str) or not isinstance(winners, Collection):
            raise BadInput("winners are a list of names")
        sitting = await self._rounds.load(tx, id_)
        sitting.must_be_open()
        if game is not None and game != sitting.head.game:
            raise BadInput(
                f"game {sitting.head.game} is on at {id_!r}, not {game}", code="other_game"
            )
        self._must_play(sitting)
        for user in winners:
            if sitting.seat_of(user) is None:
                raise BadInput(f"{str(user)[:100]!r} does not play at {id_!r}", code="not_seated")
        return await self._rounds.finish(sitting, winners, "result", {})

    @joins
    async def draw(self, tx: Transaction, id_: str, *, game: int | None = None) -> Ending:
        """End the game that is on: nobody has won."""
        return await self.result(tx, id_, (), game=game)

    # Connections, and signs of life.

    @joins
    async def away(self, tx: Transaction, id_: str, user: str) -> Place:
        """The connection is lost: the seat is kept for the time of grace. Once for several."""
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
        """The connection is there again: the seat is kept for good. Also a sign of life."""
        await self.heartbeat(tx, id_, user)
        return await self.place(tx, id_, user)

    @joins
    async def heartbeat(self, tx: Transaction, id_: str, user: str) -> None:
        """Give a sign of life. Of those who wait it touches nothing but their own record; for
        those who play it does not count as a move."""
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
        """The connection is there; who sits and waits for others has given a sign, and who acts
        is not idle."""
        head, policy, now_ms = sitting.head, sitting.policy, sitting.now_ms
        seat = sitting.seat_of(user)
        if seat is None or seat.bot:
            return
        changed, seat.away_ms = seat.away_ms > 0, 0
        if acts and seat.idle:
            changed, seat.idle = True, 0
        # Not with every sign, but when a share of the time has passed.
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
        """The time has come to look at a table."""
        await self._rounds.tick(tx, entry)

    async def purge(self, tx: Transaction, entry: Key) -> None:
        """Remove some of what a closed table has left."""
        await self._rounds.purge(tx, entry)

    async def expire(self, tx: Transaction, entry: Key) -> None:
        """Look for a sign of life of one who waits or watches."""
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
        """Read what most calls of these users read, with one call: each is given with its table,
        the same for all. Names that cannot be, and a missing table, are left to the calls."""
        id_ = users[0][0]
        info = await tx.get(info_key(id_), Info, cached=True)
        if info is not None:
            known = [user for _, user in users if names_fit(user, limits.SEATS_USER_BYTES_MAX)]
            await tx.fetch([stand_key(id_, info.epoch, user) for user in known])

    # Looking.

    @joins
    async def place(self, tx: Transaction, id_: str, user: str) -> Place:
        """Where someone is at a table: exact, at the cost of a few records."""
        admit_user(user)
        sitting = await self._rounds.load(tx, id_, looks=True)
        return await self._place(sitting, user, await sitting.stand(user))

    @joins
    async def waitlist(
        self, tx: Transaction, id_: str, *, after: str = "", limit: int = 50, public: bool = False
    ) -> list[Waiter]:
        """Those who wait at a table, lane by lane: lanes of higher priority first, then lower tiers
        and smaller parties; in a lane, whoever came first. `after` is the `waiter_key` to go on
        behind. If it is `public`, there are no names where the policy hides them. Raises
        `bad_value`."""
        if type(limit) is not int or not 0 < limit <= limits.LIST_MAX:
            raise BadInput(f"a list has 1 to {limits.LIST_MAX} entries, not {limit}")
        sitting = await self._rounds.load(tx, id_, looks=True)
        lanes = sitting.head.lanes

        def rank(key: str) -> tuple[int, int, int]:
            return lanes[key].priority, lanes[key].tier, lanes[key].size

        last, start = _read_waiter_key(after)
        if last and last not in lanes:
            raise BadInput(f"nobody has waited in the lane {last[:100]!r}", code="bad_value")
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
        """Where someone is by what was done here."""
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
            raise BadInput(f"{user!r} does not sit at {id_!r}", code="not_seated")
        return sitting

    def _must_play(self, sitting: OpenTable) -> None:
        if sitting.head.phase != "playing":
            raise BadInput(f"no game is on at {sitting.id!r}", code="no_game")


def waiter_key(waiter: Waiter) -> str:
    """Where a list goes on behind a place in the waitlist."""
    return keys.join(waiter.lane, waiter.number)


def _read_waiter_key(key: str) -> tuple[str, int]:
    """The lane and the number that come next; an empty lane without a key."""
    if key == "":
        return "", 0
    try:
        lane, number = keys.split(key)
        return lane, int(number) + 1
    except (TypeError, ValueError, AttributeError) as error:
        raise BadInput("this is not the key of a place in a waitlist", code="bad_value") from error


def _digest(move: Any) -> str:
    """Of a move as JSON: the same for the same move."""
    return blake2b(encode(move, ("move", "value"), order="sorted"), digest_size=16).hexdigest()


def _admit_ladder(ladder: str) -> None:
    if not names_fit(ladder, limits.SEATS_NAME_BYTES_MAX):
        raise BadInput("this cannot be the name of a ladder", code="bad_name")
