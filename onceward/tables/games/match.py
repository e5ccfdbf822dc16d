"""The state machine of a match, as pure functions.

A match is the result of its log: a first entry, then one `step` for each following entry. `play`,
`late`, `stop` and `leave` decide whether an entry is allowed and raise otherwise, so invalid moves
change nothing. `replay` applies the same steps again.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from onceward.api.matches import (
    MatchBegun,
    MatchEntry,
    MatchLate,
    MatchLeft,
    MatchMoved,
    MatchStopped,
    MatchView,
    Outcome,
)
from onceward.errors import BadInput
from onceward.json_values import encode
from onceward.tables.games.rules import Rules


class Match(msgspec.Struct, omit_defaults=True):
    """The current state of a game."""

    begun: MatchBegun
    state: Any
    movers: list[str]
    """The seats whose turn it is."""
    number: int = 0
    """The number of the current round, from 0."""
    pending: dict[str, Any] = {}
    """Hidden moves of the current round, by seat."""
    last: dict[str, tuple[int, Any]] = {}
    """Each player's last move with its round, to detect repeated requests."""
    due_ms: int | None = None
    """The deadline of the current round."""
    outcome: Outcome | None = None
    entries: int = 1
    """The number of log entries."""
    ended_ms: int = 0

    @property
    def awaited(self) -> list[str]:
        """The seats that have not moved in this round; empty after the end of the game."""
        if self.outcome is not None:
            return []
        return [seat for seat in self.movers if seat not in self.pending]


def begin(rules: Rules, begun: MatchBegun) -> Match:
    """A match before its first move."""
    state = _plain(rules.start(begun.seed))
    return _next_round(rules, begun.at_ms, Match(begun, state, []))


def play(
    rules: Rules, match: Match, seat: str, move: Any, at_ms: int, number: int | None = None
) -> MatchMoved | None:
    """Return the log entry of a move, or None if it repeats a move that was already made.

    `number` is the round that the player has seen. A different move for an earlier round is stale.

    Raises `BadInput`: `bad_move`, `not_your_turn`, `stale_move`, `out_of_time`, `match_over`.
    """
    if type(seat) is not str or seat not in match.begun.players:
        raise BadInput(
            f"unknown seat {str(seat)[:100]!r} in this game; use the name of a seat",
            code="not_your_turn",
        )
    if number is not None:
        known = match.last.get(seat)
        if known is not None and known[0] == number and _same(known[1], move):
            return None
        if number != match.number and match.outcome is None:
            raise BadInput(
                f"the game is at round {match.number}, not {number}; reload its state first",
                code="stale_move",
                number=match.number,
            )
    if match.outcome is not None:
        raise BadInput("the game has ended; start another one", code="match_over")
    if match.due_ms is not None and at_ms >= match.due_ms:
        raise BadInput(
            "the time for this move has run out; the game continues without it", code="out_of_time"
        )
    if seat in match.pending:
        raise BadInput("you have already moved; wait for the other players", code="not_your_turn")
    if seat not in match.movers:
        raise BadInput(
            f"it is the turn of {', '.join(match.movers)}; wait for yours", code="not_your_turn"
        )
    for legal in rules.moves(_plain(match.state), seat):
        if _same(legal, move):
            return MatchMoved(seat, _plain(legal), at_ms)
    raise BadInput(
        f"the move {str(move)[:100]!r} is not allowed now; the view has the legal ones",
        code="bad_move",
    )


def late(match: Match, at_ms: int, seats: Iterable[str] = ()) -> MatchLate | None:
    """Return the entry for players who ran out of time: `seats`, or all who have not moved.

    Returns None before the deadline and after the end of the game. A match without a clock accepts
    it at any time.
    """
    over = match.outcome is None and (match.due_ms is None or at_ms >= match.due_ms)
    return MatchLate(at_ms, tuple(seats)) if over else None


def stop(match: Match, at_ms: int, winners: Iterable[str] | None = None) -> MatchStopped | None:
    """Return the entry for an end decided outside the rules: with winners, or not counted.

    Returns None if the game has already ended.
    """
    if match.outcome is not None:
        return None
    return MatchStopped(at_ms, None if winners is None else tuple(winners))


def leave(match: Match, seat: str, at_ms: int, others: Iterable[str] = ()) -> MatchLeft | None:
    """Return the entry for a player who leaves, alone or together with others.

    Returns None if the game has ended, or the seat does not exist.
    """
    here = type(seat) is str and seat in match.begun.players and match.outcome is None
    return MatchLeft(seat, at_ms, tuple(others)) if here else None


def step(rules: Rules, match: Match, entry: MatchEntry) -> Match:
    """Return the match after a log entry, as a new object."""
    after = msgspec.structs.replace(match, entries=match.entries + 1)
    match entry:
        case MatchMoved(seat, move, at_ms):
            after.pending = {**match.pending, seat: move}
            after.last = {**match.last, seat: (match.number, move)}
            return after if after.awaited else _reveal(rules, after, at_ms)
        case MatchLate(at_ms, seats):
            return _ended(after, _losing(match, seats or match.awaited, "timeout"), at_ms)
        case MatchLeft(seat, at_ms, others):
            return _ended(after, _losing(match, [seat, *others], "left"), at_ms)
        case MatchStopped(at_ms, None):
            return _ended(after, Outcome((), "stopped"), at_ms)
        case MatchStopped(at_ms, winners):
            return _ended(after, Outcome(winners or (), "told"), at_ms)
    raise BadInput(f"an entry of a log must not begin the match again, as {entry!r} does")


def replay(rules: Rules, log: Iterable[MatchEntry]) -> list[Match]:
    """Return the match after each entry of its log. Raises `BadInput` for an invalid log."""
    found: list[Match] = []
    for entry in log:
        if found:
            found.append(step(rules, found[-1], entry))
        elif isinstance(entry, MatchBegun):
            found.append(begin(rules, entry))
        else:
            raise BadInput("the first entry of a log must name the players")
    return found


def view(rules: Rules, match: Match, seat: str | None = None) -> MatchView:
    """Return the public view of a match for a seat; None is a spectator."""
    state = _plain(rules.view(_plain(match.state), seat))
    mine, moves = None, list[Any]()
    if seat is not None:
        mine = match.pending.get(seat)
        if seat in match.awaited:
            moves = [_plain(move) for move in rules.moves(_plain(match.state), seat)]
    begun = match.begun
    return MatchView(
        match=begun.id,
        game=begun.game,
        players=begun.players,
        number=match.number,
        state=state,
        awaited=match.awaited,
        moves=moves,
        mine=mine,
        due_ms=None if match.outcome is not None else match.due_ms,
        outcome=match.outcome,
        seat=seat,
    )


def _reveal(rules: Rules, match: Match, at_ms: int) -> Match:
    """Apply the moves of a complete round, and start the next round or end the game."""
    moves = {seat: match.pending[seat] for seat in rules.seats if seat in match.pending}
    match.state = _plain(rules.reveal(_plain(match.state), moves))
    match.pending = {}
    match.number += 1
    return _next_round(rules, at_ms, match)


def _next_round(rules: Rules, at_ms: int, match: Match) -> Match:
    outcome = rules.outcome(_plain(match.state))
    if outcome is not None:
        return _ended(match, outcome, at_ms)
    match.movers = list(rules.movers(_plain(match.state), match.number))
    if not match.movers or not set(match.movers) <= set(rules.seats):
        raise BadInput(
            f"{rules.name} has not ended, but its rules return the movers {match.movers}; "
            "name the seats that may move"
        )
    turn_ms = match.begun.turn_ms
    match.due_ms = None if turn_ms is None else at_ms + turn_ms
    return match


def _ended(match: Match, outcome: Outcome, at_ms: int) -> Match:
    match.outcome, match.due_ms, match.ended_ms = outcome, None, at_ms
    return match


def _losing(match: Match, seats: Iterable[str], why: str) -> Outcome:
    """The other seats win; without other seats there is no winner."""
    losers = set(seats)
    return Outcome(tuple(seat for seat in match.begun.players if seat not in losers), why)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON: 1 is not true, and a tuple equals a list."""
    return _encoded(one) == _encoded(other)


def _encoded(value: Any) -> bytes:
    return encode(value, ("match", "value"), order="sorted")


def _plain(value: Any) -> Any:
    """Copy a value through JSON, so that rules cannot modify stored state.

    Raises `BadInput` for values that are not JSON.
    """
    return msgspec.json.decode(encode(value, ("match", "value")))
