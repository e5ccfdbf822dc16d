"""What comes of a command: who is told what, and which records change."""

import pytest

from apps.rps import rules, words
from apps.rps.records import (
    Awaited,
    Line,
    Player,
    Score,
    Thrown,
    nick_key,
    player_key,
    top_key,
)
from apps.rps.rules import Command, Outcome, RockPaperScissors
from onceward.tables.games import DRAW, MatchBegun, won
from onceward.tables.games import match as referee

ANN = Player("01A", "Ann", Line("+12025550101", "carrier"))
BOB = Player("01B", "Bob", Line("+12025550102", "carrier"))
HEADS = {player_key(ANN.line.phone): ANN, player_key(BOB.line.phone): BOB}
GAME = RockPaperScissors()


# As a game.


@pytest.mark.parametrize(
    ("winner", "loser"), [("rock", "scissors"), ("scissors", "paper"), ("paper", "rock")]
)
def test_rock_beats_scissors_and_those_paper_and_that_rock(winner: str, loser: str) -> None:
    for thrown, seat in (((winner, loser), "first"), ((loser, winner), "second")):
        state = GAME.reveal(GAME.start(""), dict(zip(GAME.seats, thrown, strict=True)))
        assert GAME.outcome(state) == won(seat)
    assert GAME.outcome({"first": winner, "second": winner}) == DRAW


def test_both_throw_and_neither_sees_what_the_other_one_has_thrown() -> None:
    players = {"first": "01A", "second": "01B"}
    match = referee.begin(GAME, MatchBegun("1", GAME.name, players, "", 0))
    assert match.awaited == ["first", "second"]
    assert list(GAME.moves(match.state, "first")) == ["rock", "paper", "scissors"]
    for seat, play in (("second", "rock"), ("first", "paper")):
        assert referee.view(GAME, match, "first").state == {}
        entry = referee.play(GAME, match, seat, play, 1)
        assert entry is not None
        match = referee.step(GAME, match, entry)
    assert match.state == {"first": "paper", "second": "rock"}
    assert match.outcome == won("first")
    assert GAME.name == "rps"


# Nicknames.


def test_a_nickname_is_taken_by_who_has_none_if_nobody_has_it() -> None:
    line = ANN.line
    assert rules.claim(line, None, None, "Ann", "01A") == Outcome(
        {player_key(line.phone): ANN, nick_key("ann"): line.phone}, [(line, words.welcome("Ann"))]
    )
    taken = rules.claim(line, None, BOB.line.phone, "bob", "01A")
    assert taken == Outcome(says=[(line, words.nick_taken("bob"))])
    again = rules.claim(line, ANN, None, "Anna", "01C")
    assert again == Outcome(says=[(line, words.has_nick("Ann"))])


def test_who_cannot_throw_hears_why() -> None:
    at_bob = Command("throw", "rock", "Bob")
    assert rules.refusal(None, BOB, at_bob) == words.NO_NICK
    assert rules.refusal(ANN, None, at_bob) == words.no_such_opponent("Bob")
    assert rules.refusal(ANN, ANN, at_bob) == words.ONESELF
    long = Command("throw", "rock", "b" * 33)
    assert rules.refusal(ANN, None, long) == words.no_such_opponent("b" * 32 + "...")


@pytest.mark.parametrize("wins", [0, 3])
def test_who_quits_is_gone_with_nickname_and_place(wins: int) -> None:
    left = rules.leave(ANN.line, ANN, wins)
    gone = {player_key(ANN.line.phone), nick_key("ann")} | ({top_key(3, "01A")} if wins else set())
    assert left.records == dict.fromkeys(gone)
    assert left.says == [(ANN.line, words.gone("Ann"))]
    assert left.leaves == ANN


def test_who_has_no_nickname_cannot_quit() -> None:
    assert rules.leave(ANN.line, None, 0) == Outcome(says=[(ANN.line, words.NO_NICK)])


# Throws.


def test_a_first_throw_waits_and_both_hear_of_it() -> None:
    waits = rules.throw(ANN, BOB, "rock", None, None, {})
    assert waits.records == {
        **HEADS,
        ("rps-thrown#01A", "01B"): Thrown("Bob", BOB.line.phone),
        ("rps-awaited#01B", "01A"): Awaited("Ann", ANN.line.phone),
    }
    assert waits.says == [
        (ANN.line, words.you_wait("rock", "Bob")),
        (BOB.line, words.they_wait("Ann")),
    ]


def test_a_throw_that_waits_is_not_thrown_again() -> None:
    for theirs in (None, "paper"):
        again = rules.throw(ANN, BOB, "rock", "scissors", theirs, {})
        assert again == Outcome(says=[(ANN.line, words.thrown_already("scissors", "Bob"))])


OVER = {("rps-thrown#01B", "01A"): None, ("rps-awaited#01A", "01B"): None}
SCORES = {("rps-score#01A", "all"): Score(3, 2, 1), ("rps-score#01B", "01A"): Score(0, 0, 5, "Ann")}


def test_who_wins_gets_a_better_place_and_who_loses_keeps_it() -> None:
    ended = rules.throw(ANN, BOB, "rock", None, "scissors", SCORES)
    assert ended.records == {
        **HEADS,
        **OVER,
        ("rps-score#01A", "all"): Score(4, 2, 1),
        ("rps-score#01A", "01B"): Score(1, 0, 0, "Bob"),
        ("rps-score#01B", "all"): Score(0, 1, 0),
        ("rps-score#01B", "01A"): Score(0, 1, 5, "Ann"),
        top_key(3, "01A"): None,
        top_key(4, "01A"): "Ann",
    }
    assert ended.says == [
        (ANN.line, words.win("rock", "scissors", "Bob")),
        (BOB.line, words.loss("scissors", "rock", "Ann")),
    ]


def test_a_tie_changes_no_place() -> None:
    ended = rules.throw(ANN, BOB, "rock", None, "rock", SCORES)
    assert ended.records == {
        **HEADS,
        **OVER,
        ("rps-score#01A", "all"): Score(3, 2, 2),
        ("rps-score#01A", "01B"): Score(0, 0, 1, "Bob"),
        ("rps-score#01B", "all"): Score(0, 0, 1),
        ("rps-score#01B", "01A"): Score(0, 0, 6, "Ann"),
    }
    assert ended.says == [
        (ANN.line, words.tie("rock", "Bob")),
        (BOB.line, words.tie("rock", "Ann")),
    ]


def test_who_does_not_throw_back_in_time_loses() -> None:
    ended = rules.late(BOB, ANN, SCORES)
    assert ended.records == {
        **HEADS,
        **OVER,
        ("rps-score#01A", "all"): Score(3, 3, 1),
        ("rps-score#01A", "01B"): Score(0, 1, 0, "Bob"),
        ("rps-score#01B", "all"): Score(1, 0, 0),
        ("rps-score#01B", "01A"): Score(1, 0, 5, "Ann"),
        top_key(0, "01B"): None,
        top_key(1, "01B"): "Bob",
    }
    assert ended.says == [
        (BOB.line, words.win_by_time("Ann")),
        (ANN.line, words.loss_by_time("Bob")),
    ]


# What is told of games.


def test_who_has_finished_no_game_hears_so() -> None:
    assert rules.standing(None, [], 2) == words.NO_GAMES
    assert rules.standing(Score(3, 2, 1), [], 2) == "Total: 3 won, 2 lost, 1 tie."


def test_games_are_told_by_opponent_and_of_many_the_first_ones() -> None:
    versus = [Score(1, 0, 0, "Bob"), Score(0, 1, 0, "Cid")]
    told = "Against Bob: 1 won, 0 lost, 0 ties. Against Cid: 0 won, 1 lost, 0 ties."
    assert rules.against(versus, 2) == told
    assert rules.against([*versus, Score(0, 0, 1, "Dan")], 2) == f"{told} ..."
    assert rules.against([], 2) == ""
    assert rules.standing(Score(1, 1), versus, 2) == f"Total: 1 won, 1 lost, 0 ties. {told}"


def test_the_best_are_told_with_their_places() -> None:
    rows = [(top_key(7, "01A")[1], "Ann"), (top_key(2, "01B")[1], "Bob")]
    assert rules.ranking(rows) == "1. Ann (7), 2. Bob (2)"
    assert rules.ranking([]) == words.NOBODY_ON_TOP
