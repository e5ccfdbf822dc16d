"""The referee: whoever may move moves, what may not be changes nothing, and logs tell it all."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.errors import BadInput
from onceward.tables.games import (
    MatchBegun,
    MatchEntry,
    MatchLate,
    MatchLeft,
    MatchMoved,
    MatchStopped,
    Outcome,
    Rules,
    replay,
    view,
    won,
)
from onceward.tables.games import match as referee
from onceward.tables.games.match import Match, leave, play
from tests.tables.games.playing import GAMES, STEPS, Guess, Nim, Trumps, begun, fresh

NIM, TRUMPS, GUESS = Nim(), Trumps(), Guess()


def refused(
    rules: Rules, match: Match, seat: str, move: Any, at_ms: int = 1_500, **more: Any
) -> str:
    """The code of the error by which a move is refused; the match is as it was."""
    before = msgspec.json.encode(match)
    with pytest.raises(BadInput) as error:
        play(rules, match, seat, move, at_ms, **more)
    assert msgspec.json.encode(match) == before
    return error.value.code


def moved(rules: Rules, match: Match, *moves: tuple[str, Any]) -> Match:
    for seat, move in moves:
        entry = play(rules, match, seat, move, 1_500)
        assert entry is not None
        match = referee.step(rules, match, entry)
    return match


def stored(match: Match) -> Match:
    """As it comes from a record."""
    return msgspec.json.decode(msgspec.json.encode(match), type=Match)


@settings(max_examples=50)
@given(st.sampled_from(GAMES), st.text(max_size=5), STEPS)
def test_a_match_is_what_its_log_says_at_every_step(
    rules: Rules, seed: str, steps: list[tuple[str, int, int, int]]
) -> None:
    log: list[MatchEntry] = [begun(rules, seed)]
    matches = [fresh(rules, seed)]
    now_ms = 1_000
    for what, at, choice, pause_ms in steps:
        match, now_ms = stored(matches[-1]), now_ms + pause_ms
        seat = rules.seats[at % len(rules.seats)]
        entry: MatchEntry | None
        if what == "move":
            moves = list(rules.moves(match.state, seat))
            may = seat in match.awaited and (match.due_ms is None or now_ms < match.due_ms)
            try:
                # One of those that may be made, or one that never may.
                move = [*moves, "x"][choice % (len(moves) + 1)]
                entry = play(rules, match, seat, move, now_ms)
            except BadInput:
                assert not may or move == "x"
                continue
            assert may
            assert move in moves
        elif what == "late":
            entry = referee.late(match, now_ms)
            over = match.due_ms is None or now_ms >= match.due_ms
            assert (entry is not None) == (over and match.outcome is None)
        else:
            entry = leave(match, seat, now_ms)
            assert (entry is None) == (match.outcome is not None)
        if entry is not None:
            log.append(entry)
            matches.append(referee.step(rules, match, entry))
    assert [msgspec.json.encode(match) for match in replay(rules, log)] == [
        msgspec.json.encode(match) for match in matches
    ]
    for match in matches:
        assert match.entries == 1 + matches.index(match)
        assert (match.outcome is None) == bool(match.awaited)
        assert match.outcome is None or match.due_ms is None


@settings(max_examples=50)
@given(st.text(max_size=5), st.data())
def test_nobody_sees_a_move_or_a_card_before_it_is_shown(seed: str, data: st.DataObject) -> None:
    match = fresh(TRUMPS, seed)
    while match.outcome is None:
        seat = data.draw(st.sampled_from(match.awaited))
        card = data.draw(st.sampled_from(TRUMPS.moves(match.state, seat)))
        hand = match.state["hands"][seat]
        match = moved(TRUMPS, match, (seat, card))
        secret = {*match.state["hands"][seat], *(hand if seat in match.pending else ())}
        for other in (None, *(one for one in TRUMPS.seats if one != seat)):
            seen = view(TRUMPS, match, other)
            own = set(match.state["hands"].get(other, ()))
            shown = {number for moves in seen.state["shown"] for number in moves.values()}
            visible = shown | own | set(seen.moves) | ({seen.mine} - {None})
            assert not visible & secret
            assert seen.seat == other
            assert "seed" not in msgspec.to_builtins(seen)


def test_turns_alternate_and_the_rules_end_the_game() -> None:
    match = fresh(NIM)
    assert match.awaited == ["first"]
    match = moved(NIM, match, ("first", 3))
    assert match.awaited == ["second"]
    match = moved(NIM, match, ("second", 1), ("first", 2), ("second", 1))
    assert match.outcome == won("second")
    assert (match.number, match.entries, match.ended_ms) == (4, 5, 1_500)


def test_who_cheats_gets_an_error_and_changes_nothing() -> None:
    match = fresh(NIM)
    assert refused(NIM, match, "second", 1) == "not_your_turn"
    for seat in ("third", None, 1, ["first"], {}):
        assert refused(NIM, match, seat, 1) == "not_your_turn"
    for move in (0, 4, -1, True, 1.0, "1", None, [1], {"win": True}):
        assert refused(NIM, match, "first", move) == "bad_move"
    assert refused(NIM, match, "first", object()) == "bad_value"
    match = moved(NIM, match, ("first", 3))
    assert refused(NIM, match, "first", 3) == "not_your_turn"
    match = moved(NIM, match, ("second", 3), ("first", 1))
    assert refused(NIM, match, "second", 1) == "match_over"
    assert refused(NIM, match, "third", 1) == "not_your_turn", "nobody sits there"


def test_a_hidden_move_cannot_be_taken_back() -> None:
    match = moved(GUESS, fresh(GUESS), ("even", "heads"))
    assert refused(GUESS, match, "even", "tails") == "not_your_turn"
    assert view(GUESS, match, "even").mine == "heads"
    assert view(GUESS, match, "odd").mine is None
    assert view(GUESS, match).awaited == ["odd"]
    assert moved(GUESS, match, ("odd", "tails")).outcome == won("odd")


def test_a_move_that_comes_again_is_known_and_one_for_an_earlier_round_is_too_late() -> None:
    match = moved(NIM, fresh(NIM), ("first", 3))
    assert play(NIM, match, "first", 3, 1_600, number=0) is None
    assert refused(NIM, match, "first", 2, number=0) == "stale_move"
    assert refused(NIM, match, "second", 1, number=0) == "stale_move"
    assert refused(NIM, match, "second", 1, number=2) == "stale_move"
    assert play(NIM, match, "second", 1, 1_600, number=1) == MatchMoved("second", 1, 1_600)
    match = moved(NIM, match, ("second", 3), ("first", 1))
    assert play(NIM, match, "first", 1, 9_999_999, number=2) is None, "also after the end"
    assert refused(NIM, match, "second", 1, number=3) == "match_over"
    hidden = moved(GUESS, fresh(GUESS), ("even", "heads"))
    assert play(GUESS, hidden, "even", "heads", 1_600, number=0) is None


def test_time_is_over_at_its_very_millisecond_and_starts_anew_with_each_round() -> None:
    match = fresh(NIM)
    assert match.due_ms == 11_000
    assert play(NIM, match, "first", 1, 10_999) is not None
    assert refused(NIM, match, "first", 1, 11_000) == "out_of_time"
    assert referee.late(match, 10_999) is None
    assert referee.late(match, 11_000) == MatchLate(11_000)
    assert moved(NIM, match, ("first", 1)).due_ms == 11_500
    assert referee.step(NIM, match, MatchLate(11_000)).outcome == Outcome(("second",), "timeout")


def test_of_several_who_are_late_none_wins() -> None:
    match = fresh(TRUMPS)
    assert referee.step(TRUMPS, match, MatchLate(99_000)).outcome == Outcome((), "timeout")
    match = moved(TRUMPS, match, ("b", match.state["hands"]["b"][0]))
    assert match.due_ms == 21_000, "a hidden move does not stop the clock of the others"
    assert referee.step(TRUMPS, match, MatchLate(99_000)).outcome == Outcome(("b",), "timeout")


def test_who_leaves_loses_and_only_once() -> None:
    match = fresh(NIM)
    entry = leave(match, "second", 2_000)
    assert entry == MatchLeft("second", 2_000)
    after = referee.step(NIM, match, entry)
    assert after.outcome == Outcome(("first",), "left")
    assert leave(after, "first", 2_001) is None
    for nobody in ("nobody", None, 1, ["first"], {}):
        assert leave(match, nobody, 2_000) is None


def test_what_is_stopped_counts_for_nobody() -> None:
    match = fresh(NIM)
    entry = referee.stop(match, 2_000)
    assert entry == MatchStopped(2_000)
    after = referee.step(NIM, match, entry)
    assert after.outcome == Outcome((), "stopped")
    assert referee.stop(after, 2_001) is None


def test_who_has_won_may_be_said_from_outside() -> None:
    match = fresh(TRUMPS)
    entry = referee.stop(match, 2_000, iter(["a", "c"]))
    assert entry == MatchStopped(2_000, ("a", "c"))
    after = referee.step(TRUMPS, match, entry)
    assert (after.outcome, after.ended_ms) == (Outcome(("a", "c"), "told"), 2_000)
    nobody = referee.stop(match, 2_000, [])
    assert nobody == MatchStopped(2_000, ())
    assert referee.step(TRUMPS, match, nobody).outcome == Outcome((), "told")


def test_some_may_be_late_or_leave_together_and_the_others_win() -> None:
    match = fresh(TRUMPS)
    entry = referee.late(match, 21_000, iter(["a", "b"]))
    assert entry == MatchLate(21_000, ("a", "b"))
    assert referee.step(TRUMPS, match, entry).outcome == Outcome(("c",), "timeout")
    sharing = leave(match, "c", 2_000, iter(["a"]))
    assert sharing == MatchLeft("c", 2_000, ("a",))
    assert referee.step(TRUMPS, match, sharing).outcome == Outcome(("b",), "left")


def test_a_match_without_a_clock_is_late_when_another_clock_says_so() -> None:
    match = fresh(GUESS)
    assert match.due_ms is None
    assert referee.late(match, 1_000) == MatchLate(1_000)
    ended = referee.step(GUESS, match, MatchLate(1_000, ("even",)))
    assert (ended.outcome, ended.ended_ms) == (Outcome(("odd",), "timeout"), 1_000)
    assert referee.late(ended, 1_001) is None


def test_a_match_begins_with_round_0_and_one_entry_and_has_not_ended() -> None:
    match = fresh(NIM)
    assert (match.number, match.entries, match.ended_ms) == (0, 1, 0)
    assert MatchBegun("1", "nim", {}, "", 0).place == ""


def test_whoever_looks_sees_whose_turn_it_is_and_for_how_long() -> None:
    match = fresh(NIM)
    mine, theirs = view(NIM, match, "first"), view(NIM, match, "second")
    assert (mine.moves, mine.due_ms, mine.outcome) == ([1, 2, 3], 11_000, None)
    assert (mine.match, mine.game, mine.number) == ("match-1", "nim", 0)
    assert mine.players == {"first": "user-first", "second": "user-second"}
    assert (theirs.moves, theirs.due_ms) == ([], 11_000)
    ended = view(NIM, referee.step(NIM, match, MatchStopped(2_000)), "first")
    assert (ended.moves, ended.awaited, ended.due_ms) == ([], [], None)
    assert ended.outcome == Outcome((), "stopped")


def test_a_move_is_the_same_in_whatever_order_its_members_are() -> None:
    class Placing(Nim):
        def moves(self, state: Any, seat: str) -> Any:
            return [{"row": 1, "column": 2}]

    entry = play(Placing(), fresh(NIM), "first", {"column": 2, "row": 1}, 1_500)
    assert entry == MatchMoved("first", {"row": 1, "column": 2}, 1_500)


def test_a_bot_makes_moves_that_may_be_made() -> None:
    for rules in GAMES:
        match, number = fresh(rules), 0
        while match.outcome is None:
            [seat, *_] = match.awaited
            number += 1
            match = moved(rules, match, (seat, rules.bot(match.state, seat, f"{number}")))


def test_what_is_no_log_is_refused() -> None:
    with pytest.raises(BadInput):
        replay(NIM, [MatchMoved("first", 1, 1_500)])
    with pytest.raises(BadInput):
        replay(NIM, [begun(NIM), begun(NIM)])
    assert replay(NIM, []) == []


@pytest.mark.parametrize("movers", [[], ["third"], ["first", "third"]])
def test_rules_that_let_nobody_move_and_do_not_end_are_told_so(movers: list[str]) -> None:
    class Stuck(Nim):
        def movers(self, state: Any, number: int) -> list[str]:
            return movers if number else ["first"]

    stuck = Stuck()
    entry = play(stuck, fresh(stuck), "first", 1, 1_500)
    assert entry is not None
    with pytest.raises(BadInput):
        referee.step(stuck, fresh(stuck), entry)


def test_rules_whose_state_is_no_json_are_told_so() -> None:
    class Odd(Nim):
        def start(self, seed: str) -> Any:
            return object()

    with pytest.raises(BadInput) as error:
        referee.begin(Odd(), MatchBegun("1", "odd", {}, "", 0))
    assert error.value.code == "bad_value"
