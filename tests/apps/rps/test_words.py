"""What the game says: whom and what it is about, in texts that are cheap to send."""

from collections.abc import Callable

import pytest

from apps.rps import rules, words
from apps.rps.records import Score

ONE_TEXT_CHARS = 160
FIXED = [
    *(
        words.HELP,
        words.OPTED_OUT,
        words.BACK,
        *words.TOPICS.values(),
        words.NICK_MISSING,
        words.NICK_MALFORMED,
    ),
    *(words.THROW_MISSING, words.NO_NICK, words.ONESELF, words.NOTHING_PENDING),
    *(words.NO_GAMES, words.NOBODY_ON_TOP, words.MORE),
]


@pytest.mark.parametrize(
    ("say", "about"),
    [
        (words.unknown, ["dance"]),
        (words.no_such_play, ["lizard"]),
        (words.has_nick, ["Ann"]),
        (words.nick_taken, ["Ann"]),
        (words.welcome, ["Ann"]),
        (words.entered, ["Ann"]),
        (words.no_such_opponent, ["Bob"]),
        (words.thrown_already, ["rock", "Bob"]),
        (words.you_wait, ["rock", "Bob"]),
        (words.they_wait, ["Ann"]),
        (words.tie, ["rock", "Bob"]),
        (words.win, ["paper", "rock", "Bob"]),
        (words.loss, ["rock", "paper", "Bob"]),
        (words.win_by_time, ["Bob"]),
        (words.loss_by_time, ["Bob"]),
        (words.gone, ["Ann"]),
        (words.they_left, ["Bob"]),
        (words.never_played, ["Bob"]),
    ],
)
def test_a_sentence_says_what_it_is_about(say: Callable[..., str], about: list[str]) -> None:
    text = say(*about)
    assert all(word in text for word in about)
    assert text.isascii()
    assert len(text) <= ONE_TEXT_CHARS


@pytest.mark.parametrize("text", FIXED)
def test_what_is_always_the_same_fits_into_one_plain_text(text: str) -> None:
    assert text.isascii()
    assert 0 < len(text) <= ONE_TEXT_CHARS


def test_there_is_help_on_every_command_but_help() -> None:
    assert set(words.TOPICS) == set(rules.COMMANDS) - {"help"}
    for name, text in words.TOPICS.items():
        assert text.startswith(name)


def test_who_wins_and_who_loses_hear_of_the_same_plays() -> None:
    assert words.win("paper", "rock", "Bob") == "You win: your paper beats the rock of Bob."
    assert words.loss("rock", "paper", "Ann") == "You lose: the paper of Ann beats your rock."


@pytest.mark.parametrize(
    ("waited_for", "waiting", "said"),
    [
        ("", "", words.NOTHING_PENDING),
        ("Ann, Bob", "", "You are waiting for Ann, Bob."),
        ("", "Cid", "Waiting for you: Cid."),
        ("Ann", "Cid", "You are waiting for Ann. Waiting for you: Cid."),
    ],
)
def test_those_are_named_who_wait(waited_for: str, waiting: str, said: str) -> None:
    assert words.pending(waited_for, waiting) == said


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (Score(), "0 won, 0 lost, 0 ties"),
        (Score(3, 2, 1), "3 won, 2 lost, 1 tie"),
        (Score(1, 1, 2), "1 won, 1 lost, 2 ties"),
    ],
)
def test_games_are_counted_and_one_tie_is_no_ties(score: Score, said: str) -> None:
    assert words.in_all(score) == f"Total: {said}."
    assert words.against(Score(score.wins, score.losses, score.ties, "Bob")) == (
        f"Against Bob: {said}."
    )


def test_a_list_that_goes_on_ends_with_dots() -> None:
    assert words.MORE == "..."


@pytest.mark.parametrize("text", [words.HELP, words.BACK, words.welcome("Ann")])
def test_those_who_begin_hear_how_to_opt_out_and_get_help(text: str) -> None:
    assert text.endswith("Reply STOP to opt out, HELP for help.")


def test_the_confirmation_names_the_game_and_the_way_back() -> None:
    assert words.OPTED_OUT.startswith("Rock, paper, scissors:")
    assert words.OPTED_OUT.endswith("Reply START to come back.")
