"""Words and nicknames in every script: what looks the same is the same."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apps.rps.spelling import fold, is_nick, letters_of, plain, words_of

# The first and the last of each row of characters that have no glyph.
UNSEEN = [
    *[(0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x3164, 0x3164)],
    *[(0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0100, 0xE01EF)],
]
NICKS = st.text(st.characters(categories=["L", "N", "Mn", "Mc"]), min_size=1, max_size=32)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("throw rock Bob", ["throw", "rock", "Bob"]),
        ("  throw\u00a0rock\t\nBob ", ["throw", "rock", "Bob"]),
        ("Stop!", ["Stop"]),
        ("throw:rock,Bob_.", ["throw", "rock", "Bob_"]),
        ("\uff34\uff48\uff52\uff4f\uff57 rock", ["Throw", "rock"]),
        ("st\u200bop\ufe0f", ["stop"]),
        ("\u202estop\u202c\x00", ["stop"]),
        ("? throw", ["?", "throw"]),
        ("what?", ["what"]),
        ("... \u2014 !", []),
        ("\u3164\uffa0\u115f", []),
        ("<img", ["<img"]),
    ],
)
def test_a_text_has_words_without_punctuation(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_the_letters_of_a_text_are_read_across_spaces_and_dots() -> None:
    assert letters_of("Opt-out!") == letters_of(" O.P.T  O_U_T 1") == "optout"


@pytest.mark.parametrize(
    "nick",
    [
        "Ann",
        "bOB_2",
        "_",
        "a" * 32,
        "\u00e4" * 32,
        "\u0905\u0928\u094d\u0928\u093e",  # Hindi, with a vowel sign and a virama
        "\u0e17\u0e35\u0e48\u0e23\u0e31\u0e01",  # Thai, with tone marks
        "\u0645\u064f\u062d\u0645\u062f",  # Arabic, with a vowel mark
        "\u05d3\u05b8\u05df",  # Hebrew
        "\u674e\u96f7",
        "\u1019\u103c\u1014\u103a\u1019\u102c",  # Burmese
        "\u0967\u0968",
    ],
)
def test_a_nickname_is_in_any_script(nick: str) -> None:
    assert is_nick(nick)


@pytest.mark.parametrize(
    "word",
    [
        *("", "a" * 33, "Ann Bob", "Ann-Bob", "Ann+Bob", "\U0001f600", "a\u20e0"),
        "\u0301a",  # the mark would join the character before it
        *("A\u200bnn", "A\u2060nn", "Ann\ufe0f", "\u3164", "A\u115fnn", "A\u034fnn", "\u202eAnn"),
    ],
)
def test_a_nickname_has_nothing_that_is_no_letter_or_not_seen(word: str) -> None:
    assert not is_nick(word)


@pytest.mark.parametrize("first_last", UNSEEN, ids=lambda one: f"{one[0]:x}-{one[1]:x}")
def test_only_characters_without_a_glyph_are_left_out(first_last: tuple[int, int]) -> None:
    first, last = first_last
    for code in (first, last):
        assert plain(f"a{chr(code)}b") == "ab", hex(code)
        assert not is_nick(f"a{chr(code)}"), hex(code)
    for code in (first - 1, last + 1):
        assert plain(f"a{chr(code)}b") != "ab", hex(code)


@pytest.mark.parametrize(
    ("nick", "other", "same"),
    [
        ("Ann", "aNN", True),
        ("Zo\u00eb", "ZOE\u0308", True),
        ("Stra\u00dfe", "STRASSE", True),
        ("\uff21nn", "Ann", True),
        ("\ufb01n", "FIN", True),
        ("\u2460", "1", True),
        ("Zo\u00eb", "Zoe", False),
        ("Ann", "Anna", False),
    ],
)
def test_nicknames_are_the_same_in_any_case_and_writing(nick: str, other: str, same: bool) -> None:
    assert (fold(nick) == fold(other)) is same


@given(NICKS)
@example("\N{GREEK SMALL LETTER ALPHA WITH PERISPOMENI AND YPOGEGRAMMENI}")
def test_nicknames_that_differ_in_case_alone_are_the_same(nick: str) -> None:
    for other in (nick.upper(), nick.lower(), nick.swapcase(), nick.title()):
        if other.casefold() == nick.casefold():
            assert fold(other) == fold(nick)
    assert fold(fold(nick)) == fold(nick) == fold(plain(nick))


@given(st.text())
def test_a_text_that_is_plain_stays_as_it_is(text: str) -> None:
    assert plain(plain(text)) == plain(text)
