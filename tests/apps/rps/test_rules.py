"""What texts mean, and what comes of throws, for all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.rps import rules, words
from apps.rps.records import Line, Player, Score, top_key, top_wins
from apps.rps.rules import BEATS, PLAYS, Command, Wrong
from apps.rps.spelling import fold, is_nick, plain, words_of

ANN = Player("01A", "Ann", Line("+12025550101", "carrier"))
BOB = Player("01B", "Bob", Line("+12025550102", "carrier"))
LETTERS = st.characters(categories=["Lu", "Ll", "Lo", "Nd"])
SPACES = st.text(" \t\n\r\u00a0\u2003", max_size=3)


def cased(word: str) -> st.SearchStrategy[str]:
    """A word in any mixture of cases."""
    return st.tuples(*[st.sampled_from([c.lower(), c.upper()]) for c in word]).map("".join)


def test_every_beginning_of_a_play_is_that_play() -> None:
    for play in PLAYS:
        for end in range(1, len(play) + 1):
            assert rules.read_play(play[:end]) == play
            assert rules.read_play(play[:end].upper()) == play
    for word in ("", "rocks", "x", "stone", "scisors", "rock,"):
        assert rules.read_play(word) is None


@given(
    st.sampled_from(["throw", "t", "play", "p"]).flatmap(cased),
    st.sampled_from(PLAYS).flatmap(lambda play: st.integers(1, len(play)).map(lambda n: play[:n])),
    st.text(LETTERS, min_size=1, max_size=32).map(plain).filter(is_nick),
    st.tuples(SPACES, SPACES),
)
def test_a_throw_is_read_in_any_case_with_any_space_around(
    word: str, play: str, nick: str, around: tuple[str, str]
) -> None:
    read = rules.read(f"{around[0]}{word} \t{play}\n{nick}{around[1]}")
    assert isinstance(read, Command)
    assert read.name == "throw"
    assert read.play.startswith(play)
    assert fold(read.nick) == fold(nick)


@given(st.text())
def test_any_text_is_read_and_has_an_answer_that_fits_into_a_text(text: str) -> None:
    read = rules.read(text)
    if isinstance(read, Wrong):
        assert 0 < len(read.reply) <= 320
    else:
        assert read.name in rules.COMMANDS
        assert (read.name == "throw") == bool(read.play)
    if not words_of(text):
        assert read == Wrong(words.HELP)


@pytest.mark.parametrize("mine", PLAYS)
@pytest.mark.parametrize("theirs", PLAYS)
def test_the_second_throw_ends_the_game_and_counts_for_both(mine: str, theirs: str) -> None:
    keys = rules.score_keys(ANN, BOB)
    ended = rules.throw(ANN, BOB, mine, None, theirs, {keys[0]: Score(3, 2, 1)})
    assert [line for line, _ in ended.says] == [ANN.line, BOB.line]
    scores = [ended.records[key] for key in keys]
    ann, ann_bob, bob, bob_ann = [(s.wins, s.losses, s.ties) for s in scores]
    won = (int(BEATS[mine] == theirs), int(BEATS[theirs] == mine), int(mine == theirs))
    assert sum(won) == 1
    assert ann_bob == won
    assert ann == (3 + won[0], 2 + won[1], 1 + won[2])
    assert bob == bob_ann == (won[1], won[0], won[2])
    gone = [key for key, value in ended.records.items() if value is None]
    assert ("rps-thrown#01B", "01A") in gone
    assert ("rps-awaited#01A", "01B") in gone
    said = [text.split()[1].rstrip(":") for _, text in ended.says]
    assert said == {(1, 0, 0): ["win", "lose"], (0, 1, 0): ["lose", "win"]}.get(won, ["and", "and"])


def test_a_first_throw_says_nothing_of_the_play_to_the_opponent() -> None:
    for play in PLAYS:
        waits = rules.throw(ANN, BOB, play, None, None, {})
        [said] = [text for line, text in waits.says if line == BOB.line]
        assert play not in said
        assert play not in str(waits.records), "only the match knows"


def test_only_those_who_waited_and_are_still_there_hear_that_someone_left() -> None:
    later = Player("01B-later", "Bob", BOB.line)
    cleared = rules.clear(ANN, ["01C"], {"01B": later, "01D": None, "01E": None}, ["all"])
    assert cleared.says == []
    assert len(cleared.records) == 2 + 2 * 3 + 1
    assert set(cleared.records.values()) == {None}
    cleared = rules.clear(ANN, [], {"01B": BOB}, [])
    assert cleared.says == [(BOB.line, words.they_left("Ann"))]


@given(st.lists(st.tuples(st.integers(0, 10**9), st.sampled_from("ABC")), unique=True))
def test_places_are_in_the_order_of_wins(players: list[tuple[int, str]]) -> None:
    places = sorted(top_key(wins, id_)[1] for wins, id_ in players)
    assert [top_wins(place) for place in places] == sorted((w for w, _ in players), reverse=True)


def test_long_lists_are_cut_and_say_so() -> None:
    assert rules.listed(["Ann", "Bob"], 2) == "Ann, Bob"
    assert rules.listed(["Ann", "Bob", "Cid"], 2) == "Ann, Bob, ..."
    versus = [Score(1, 0, 0, f"P{n}") for n in range(3)]
    assert rules.standing(Score(3), versus, 2).endswith("Against P1: 1 won, 0 lost, 0 ties. ...")
