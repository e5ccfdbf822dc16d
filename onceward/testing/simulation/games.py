"""The scenario for games: turn-based and hidden moves with clocks, checked after every commit.

The checker follows the log of every match as it is written, and shares no code with the games under
test. It implements the two games, counts the time for each move, and compares the displayed state
with the revealed moves. It detects moves that should not count, moves revealed too early, clocks
that end a game too soon, and tables that continue without their match.
"""

import random
from typing import Any, ClassVar, Final

import msgspec

from onceward import keys
from onceward.engine.base import Delete, Put
from onceward.errors import BadInput, Unavailable
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.store.user_records import UserTransaction, admit_tx
from onceward.tables import Change, Seats
from onceward.tables import register as tables_register
from onceward.tables.games import DRAW, Game, Matches, Outcome, Rules, won
from onceward.tables.games import register as games_register
from onceward.tables.games.server import Games
from onceward.tables.referee import TableReferee
from onceward.tables.server import Tables
from onceward.testing.simulation.history import Applied, History, violated
from onceward.testing.simulation.network import Message
from onceward.testing.simulation.scenario import Scenario
from onceward.testing.simulation.serving import DID, done_once, judge_answers, start_service
from onceward.testing.simulation.world import Node

TABLE: Final = "t"
SHOWN: Final = "shown"
GOAL: Final = 5
ROUNDS: Final = 2


class Race(Rules):
    """Players add 1 or 2 in turn; the player who reaches the goal wins."""

    name, seats = "race", ("X", "O")

    def start(self, seed: str) -> Any:
        return []

    def moves(self, state: Any, seat: str) -> list[int]:
        return [1, 2]

    def apply(self, state: Any, seat: str, move: Any) -> Any:
        return [*state, [seat, move]]

    def outcome(self, state: Any) -> Outcome | None:
        return won(state[-1][0]) if sum(move for _, move in state) >= GOAL else None


class Bids(Rules):
    """Hidden, simultaneous bids of 1 or 2; the highest total of all rounds wins."""

    name, seats, simultaneous = "bids", ("X", "O"), True

    def start(self, seed: str) -> Any:
        return []

    def moves(self, state: Any, seat: str) -> list[int]:
        return [1, 2]

    def reveal(self, state: Any, moves: Any) -> Any:
        return [*state, *[[seat, move] for seat, move in moves.items()]]

    def outcome(self, state: Any) -> Outcome | None:
        if len(state) < ROUNDS * len(self.seats):
            return None
        sums = {seat: sum(bid for by, bid in state if by == seat) for seat in self.seats}
        return DRAW if len(set(sums.values())) == 1 else won(max(sums, key=sums.__getitem__))


class Screen:
    """A board that stores its displayed state in records, for the checker."""

    async def open(self, tx: Transaction, table: str) -> None:
        pass

    async def show(self, tx: Transaction, table: str, changes: list[Change]) -> None:
        for change in changes:
            tx.put((SHOWN, keys.join(change.map, change.key)), change.value)

    async def close(self, tx: Transaction, table: str) -> None:
        pass


class Playings(Scenario):
    """Clients make users join, leave, move, disconnect and reconnect, at one table."""

    clients = (2, 5)
    operations = (15, 35)
    without = frozenset({"function run again"})  # the service runs most functions
    kinds = ("game won", "game drawn", "game lost on time", "game left", "hidden move")
    seats_type: ClassVar[type[Seats]] = Seats
    matches_type: ClassVar[type[Matches]] = Matches
    referee_type: ClassVar[type[TableReferee]] = TableReferee

    def setup(self, random: random.Random) -> None:
        self.slots = random.choice((1, 2))
        self.rules = random.choice((Race(), Bids()))
        self.users = [f"u{number}" for number in range(random.choice((2, 3, 5)))]
        self.policy: dict[str, Any] = {
            "kind": "ranked",
            "tiers": [],
            "max_wins": random.choice((0, 2)),
            "turn_ms": random.choice((1_500, 4_000)),
            "warn_ms": random.choice((0, 500)),
            "grace_ms": random.choice((1_000, 3_000)),
            "idle": random.choice(("back", "leave")),
            "waiting_ms": 6_000,
        }
        # All users have left: games end by time, and then the table is empty.
        self.calm_s = 70.0
        self._tables: dict[str, Tables] = {}

    async def prepare(self, store: Store) -> None:
        seats = self.seats_type(store.ids, self.slots)
        nobody: Any = None  # no user plays yet
        seats.referees[self.rules.name] = self.referee_type(self.rules, nobody, seats, Screen())
        policy = seats.policy_of(self.rules.name, self.policy)
        await store.run(lambda tx: seats.create(tx, TABLE, policy=policy, game=self.rules.name))

    async def start(self, node: Node) -> None:
        node.spawn(self._serve(node))

    async def _serve(self, node: Node) -> None:
        service = await start_service(node, self.slots)
        board = Screen()
        part = self.seats_type(node.ids, self.slots, board)
        matches = self.matches_type(node.ids, self.slots)
        games = Games(matches, {self.rules.name: Game(self.rules)})
        part.referees[self.rules.name] = self.referee_type(self.rules, games, part, board)
        self._tables[node.name] = Tables(node.store, part)
        service.dispatcher.act_on(games_register.PART.due, matches)
        service.dispatcher.act_on(tables_register.PART.due, part)
        await service.wait()

    def request(self, random: random.Random) -> Any:
        deeds = ("move", "join", "leave", "away", "back", "place")
        what = random.choices(deeds, (14, 5, 1, 1, 2, 1))[0]
        return what, random.choice(self.users), random.choice((1, 1, 2, 2, 7))

    async def handle(self, node: Node, message: Message) -> Any:
        tables = self._tables.get(node.name)
        if tables is None:
            raise Unavailable("the node is just starting")

        async def fn(user_tx: UserTransaction) -> Any:
            tx = admit_tx(user_tx)
            return await done_once(tx, message.id, lambda: self._do(tx, tables.part, message))

        return await tables.run(TABLE, fn)

    async def _do(self, tx: Transaction, seats: Seats, message: Message) -> Any:
        what, user, pick = message.request
        try:
            if what == "move":
                answer = await seats.move(tx, TABLE, user, pick, key=message.id)
            else:
                answer = await getattr(seats, what)(tx, TABLE, user)
        except BadInput as error:
            # The transaction continues after a rejection, so a rejected call must leave no writes.
            return {"refused": error.code, "what": what, "user": user}
        plain = msgspec.json.decode(msgspec.json.encode(answer))
        return {"what": what, "user": user, "move": pick, "answer": plain}

    def judge(self, history: History) -> None:
        judge = Umpire(self.rules.name, self.policy)
        for commit in history.commits:
            judge.apply(commit)
        judge.end()
        judge_answers(history, judge.did)
        history.seen.update(judge.seen)


class Played:
    """One match, as reconstructed from its log."""

    def __init__(self, begun: Any) -> None:
        self.id: str = begun["id"]
        self.hidden = begun["game"] == "bids"
        self.players: dict[str, str] = begun["players"]
        self.log = 1
        self.told: list[list[Any]] = []
        """The revealed moves."""
        self.pending: dict[str, int] = {}
        self.round_ms: int = begun["at_ms"]
        self.over = ""
        self.winners: list[str] = []

    @property
    def movers(self) -> list[str]:
        if self.hidden:
            return [seat for seat in self.players if seat not in self.pending]
        return [list(self.players)[len(self.told) % 2]]

    def step(self, entry: Any, turn_ms: int) -> None:
        self.log += 1
        if self.over:
            violated("moved after the end", f"{self.id}: {entry}")
        due_ms = self.round_ms + turn_ms
        match entry["type"]:
            case "moved":
                self._move(entry, due_ms)
            case "late":
                if entry["at_ms"] < due_ms:
                    violated("clock too early", f"{self.id}: {entry}, but it was due at {due_ms}")
                self._end("late", entry.get("seats") or self.movers)
            case "left":
                self._end("left", [entry["seat"], *entry.get("others", ())])
            case _:
                self.over = "stopped"

    def _move(self, entry: Any, due_ms: int) -> None:
        seat, move, at_ms = entry["seat"], entry["move"], entry["at_ms"]
        if seat not in self.movers:
            violated("out of turn", f"{self.id}: {entry}, but it is the turn of {self.movers}")
        if move not in (1, 2):
            violated("illegal move", f"{self.id}: {entry}")
        if at_ms >= due_ms:
            violated("too late", f"{self.id}: {entry}, but it was due at {due_ms}")
        self.pending[seat] = move
        if self.hidden and len(self.pending) < len(self.players):
            return
        self.told += [[one, self.pending[one]] for one in self.players if one in self.pending]
        self.pending, self.round_ms = {}, at_ms
        sums = {one: sum(bid for by, bid in self.told if by == one) for one in self.players}
        if self.hidden and len(self.told) == 2 * ROUNDS:
            most, least = max(sums.values()), min(sums.values())
            self._end("played", [one for one in sums if sums[one] < most or most == least])
        elif not self.hidden and sum(sums.values()) >= GOAL:
            self._end("played", [one for one in self.players if one != seat])

    def _end(self, how: str, losers: list[str]) -> None:
        self.over = how
        self.winners = [seat for seat in self.players if seat not in losers]


class Umpire:
    """All matches of a table, commit by commit."""

    def __init__(self, game: str, policy: Any) -> None:
        self.did: dict[str, Any] = {}
        self.seen: dict[str, int] = {}
        self._game = game
        self._policy = policy
        self._matches: dict[str, Played] = {}
        self._head: dict[str, Any] = {}
        self._playing = ""
        self._ratings: dict[str, Any] = {}
        self._played: dict[str, int] = {}

    def apply(self, commit: Applied) -> None:
        before = self._head
        shown: dict[str, Any] = {}
        heads: dict[str, Any] = {}
        log: list[tuple[str, int, Any]] = []
        did: list[Any] = []
        for write in commit.writes:
            if not isinstance(write, Put | Delete):
                continue
            kind, sort = keys.split(write.key[0])[0], keys.split(write.key[1])
            value = msgspec.json.decode(write.value) if isinstance(write, Put) else None
            if kind == "table" and sort[0] == "head":
                self._head = value or {}
            elif kind == "match":
                id_ = keys.split(write.key[0])[1]
                if sort[0] == "head":
                    heads[id_] = value
                else:
                    log.append((id_, int(sort[1]), value))
            elif kind == "playing":
                self._playing = value or ""
            elif kind == "rating":
                self._ratings[sort[0]] = value
            elif kind == SHOWN:
                shown["/".join(sort)] = value
            elif kind == DID:
                did.append(value)
                if sort[0] in self.did:
                    violated("twice", f"{sort[0]} was done again")
                self.did[sort[0]] = value
        for id_, number, entry in sorted(log, key=lambda one: (one[0], one[1])):
            self._enter(id_, number, entry, before, did)
        for id_, head in heads.items():
            self._judge_head(self._matches[id_], head)
        if log or heads or self._head is not before:
            self._judge_table()
        self._judge_shown(shown)
        for one in did:
            self._judge_answer(one)

    def _enter(self, id_: str, number: int, entry: Any, before: Any, did: list[Any]) -> None:
        if entry["type"] == "begun":
            if number != 1 or id_ in self._matches:
                violated("log rewritten", f"{id_} begins at {number}")
            self._matches[id_] = Played(entry)
            return
        match = self._matches[id_]
        if number != match.log + 1:
            violated("log rewritten", f"{id_}: {number} comes after {match.log}")
        if entry["type"] == "left" and not any(one["what"] == "leave" for one in did):
            self._judge_lost(match, entry, before)
        match.step(entry, self._policy["turn_ms"])
        if match.pending:
            self._count("hidden move")
        if match.over and match.over != "stopped":
            for user in match.players.values():
                self._played[user] = self._played.get(user, 0) + 1
            how = {"late": "lost on time", "left": "left"}.get(match.over)
            self._count(f"game {how or ('won' if match.winners else 'drawn')}")

    def _judge_lost(self, match: Played, entry: Any, before: Any) -> None:
        """A player who lost by absence has been away for the grace period."""
        for seat in (entry["seat"], *entry.get("others", ())):
            sat = before.get("seats", {}).get(seat, {})
            ends = [sat.get("away_ms", 0), sat.get("due_ms", 0)]
            if not any(0 < end <= entry["at_ms"] for end in ends):
                violated("clock too early", f"{match.id}: {entry}, but {sat} was present")

    def _judge_head(self, match: Played, head: Any) -> None:
        """The stored state of a match agrees with its log."""
        outcome = head.get("outcome")
        if head["state"] != match.told or head.get("pending", {}) != match.pending:
            violated("another state", f"{match.id}: {head}, expected {match.told}")
        if (outcome is not None) != bool(match.over):
            violated("another end", f"{match.id}: {outcome}, expected {match.over!r}")
        if outcome is not None and list(outcome["winners"]) != match.winners:
            violated("another winner", f"{match.id}: {outcome}, expected {match.winners}")

    def _judge_table(self) -> None:
        """The table plays the running match with its players, and ratings include all matches."""
        on = [match for match in self._matches.values() if not match.over]
        players = {marker: seat["user"] for marker, seat in self._head.get("seats", {}).items()}
        if self._head.get("phase") == "playing":
            if [match.id for match in on] != [self._playing] or on[0].players != players:
                violated("table and match differ", f"{players} sit, {self._playing} is on")
            turns = [m for m, seat in self._head["seats"].items() if seat.get("turn")]
            if sorted(turns) != sorted(on[0].movers):
                violated("wrong turn", f"{turns}, but it is the turn of {on[0].movers}")
        elif on or self._playing:
            violated(
                "table and match differ", f"no player is seated, but {self._playing} is running"
            )
        for user, count in self._played.items():
            rating = self._ratings.get(user, {})
            if rating.get("games", 0) != count:
                violated("wrong rating", f"{user}: {rating} after {count} games")
        total = sum(one["rating"] - 1_200 for one in self._ratings.values())
        if total:
            violated("wrong rating", f"{self._ratings}: {total} came from nowhere")

    def _judge_shown(self, shown: dict[str, Any]) -> None:
        """The public view contains only revealed moves."""
        for key in ("game/now", "game/last"):
            view = shown.get(key)
            if view is None:
                continue
            match = self._matches[view["match"]]
            if view["state"] != match.told or view["mine"] is not None or view["moves"]:
                violated(
                    "secret shown",
                    f"{key} of {match.id}: {view}, but only {match.told} is revealed",
                )

    def _judge_answer(self, one: Any) -> None:
        """A player's view contains the player's own move and the revealed moves of others."""
        if one["what"] != "move" or "refused" in one:
            return
        view = one["answer"]
        match = self._matches[view["match"]]
        if match.players.get(view["seat"]) != one["user"]:
            violated("secret shown", f"{one['user']} sees as {view['seat']} of {match.players}")
        if match.hidden and len(view["state"]) % 2:
            violated("secret shown", f"{one['user']} sees {view['state']}")
        known = match.told[: len(view["state"])]
        if view["mine"] not in (None, one["move"]) or view["state"] != known:
            violated(
                "secret shown", f"{one['user']} sees {view}, but only {match.told} is revealed"
            )

    def end(self) -> None:
        """At the end, all seats are empty and no game is running."""
        if self._head.get("seats") or self._playing:
            violated("stuck", f"{self._head} at the end, with {self._playing} running")

    def _count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1
