"""The state machine of a match, as pure functions.

A match is what its log says: it begins with an entry, and each entry after it is one step, by
`step`. `play`, `late` and `leave` decide whether there may be such an entry, and raise for what
may not be; so a client that cheats changes nothing. `replay` takes the same steps again.
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
    """A game as it stands."""

    begun: MatchBegun
    state: Any
    movers: list[str]
    """Whose turn it is."""
    number: int = 0
    """Which round it is, from 0 on."""
    pending: dict[str, Any] = {}
    """Moves of this round, which nobody sees yet."""
    last: dict[str, tuple[int, Any]] = {}
    """Each player's last move with its round: one that comes again is known."""
    due_ms: int | None = None
    """When the time for this round is over."""
    outcome: Outcome | None = None
    entries: int = 1
    """How many the log has."""
    ended_ms: int = 0

    @property
    def awaited(self) -> list[str]:
        """The seats that have yet to move; none when the game is over."""
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
    """The entry of a move. With `number`, the round that the player has seen: a move that was
    made then and comes again is None, and another one is too late for it.

    Raises `BadInput`: `bad_move`, `not_your_turn`, `stale_move`, `out_of_time`, `match_over`.
    """
    if type(seat) is not str or seat not in match.begun.players:
        raise BadInput(f"nobody sits at {str(seat)[:100]!r} in this game", code="not_your_turn")
    if number is not None:
        known = match.last.get(seat)
        if known is not None and known[0] == number and _same(known[1], move):
            return None
        if number != match.number and match.outcome is None:
            raise BadInput(
                f"the game is at round {match.number}, not {number}: look again, then move",
                code="stale_move",
                number=match.number,
            )
    if match.outcome is not None:
        raise BadInput("the game is over", code="match_over")
    if match.due_ms is not None and at_ms >= match.due_ms:
        raise BadInput("the time for this move is over", code="out_of_time")
    if seat in match.pending:
        raise BadInput("you have moved already: wait for the others", code="not_your_turn")
    if seat not in match.movers:
        raise BadInput(f"it is the turn of {', '.join(match.movers)}", code="not_your_turn")
    for legal in rules.moves(_plain(match.state), seat):
        if _same(legal, move):
            return MatchMoved(seat, _plain(legal), at_ms)
    raise BadInput("this move cannot be made now", code="bad_move")


def late(match: Match, at_ms: int, seats: Iterable[str] = ()) -> MatchLate | None:
    """The entry of a time that is over, for some or all who have yet to move; None if it is not,
    or the game has ended. Of a match that has no clock of its own, another one says when."""
    over = match.outcome is None and (match.due_ms is None or at_ms >= match.due_ms)
    return MatchLate(at_ms, tuple(seats)) if over else None


def stop(match: Match, at_ms: int, winners: Iterable[str] | None = None) -> MatchStopped | None:
    """The entry of an end that is said from outside, with winners or so that it does not count;
    None if the game has ended before."""
    if match.outcome is not None:
        return None
    return MatchStopped(at_ms, None if winners is None else tuple(winners))


def leave(match: Match, seat: str, at_ms: int, others: Iterable[str] = ()) -> MatchLeft | None:
    """The entry of a player who goes away, alone or at the same time as others; None if the game
    has ended, or nobody sits there."""
    here = type(seat) is str and seat in match.begun.players and match.outcome is None
    return MatchLeft(seat, at_ms, tuple(others)) if here else None


def step(rules: Rules, match: Match, entry: MatchEntry) -> Match:
    """The match after an entry of its log. The one before stays as it is."""
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
    raise BadInput(f"a log begins once, not again with {entry}")


def replay(rules: Rules, log: Iterable[MatchEntry]) -> list[Match]:
    """The match as it was after each entry of its log. Raises `BadInput` for what is no log."""
    found: list[Match] = []
    for entry in log:
        if found:
            found.append(step(rules, found[-1], entry))
        elif isinstance(entry, MatchBegun):
            found.append(begin(rules, entry))
        else:
            raise BadInput("a log begins with who plays")
    return found


def view(rules: Rules, match: Match, seat: str | None = None) -> MatchView:
    """What someone sees of a match; None is whoever looks on, who sees what all see."""
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
    """All have moved: the moves count, and the next round begins, unless that was the last."""
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
        raise BadInput(f"{rules.name} is not over, and its rules let {match.movers} move")
    turn_ms = match.begun.turn_ms
    match.due_ms = None if turn_ms is None else at_ms + turn_ms
    return match


def _ended(match: Match, outcome: Outcome, at_ms: int) -> Match:
    match.outcome, match.due_ms, match.ended_ms = outcome, None, at_ms
    return match


def _losing(match: Match, seats: Iterable[str], why: str) -> Outcome:
    """The others win; if there are none, nobody does."""
    losers = set(seats)
    return Outcome(tuple(seat for seat in match.begun.players if seat not in losers), why)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: 1 is not true, and a tuple is a list."""
    return _encoded(one) == _encoded(other)


def _encoded(value: Any) -> bytes:
    return encode(value, ("match", "value"), order="sorted")


def _plain(value: Any) -> Any:
    """A value as JSON has it, and nobody else's object: rules that change what they were given
    change nothing here. Raises `BadInput` for what is no JSON."""
    return msgspec.json.decode(encode(value, ("match", "value")))
