"""What each text asks for, word by word, and what is said to those that ask for nothing."""

import pytest

from apps.rps import rules, words
from apps.rps.rules import Command, Wrong, quoted, read

OPT_OUT = ("STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "REVOKE", "OPTOUT")


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("nick Ann", Command("nick", nick="Ann")),
        ("n Ann", Command("nick", nick="Ann")),
        ("throw rock Bob", Command("throw", "rock", "Bob")),
        ("t r Bob", Command("throw", "rock", "Bob")),
        ("Play PAPER Bob", Command("throw", "paper", "Bob")),
        ("p sc Bob", Command("throw", "scissors", "Bob")),
        ("quit", Command("quit")),
        ("STOP", Command("quit")),
        ("quit it", Command("quit")),
        *((word, Command("quit")) for word in OPT_OUT),
        *((f" \u201c{word.title()}!\u201d ", Command("quit")) for word in OPT_OUT),
        ("stop texting me", Command("quit")),
        ("opt out", Command("quit")),
        ("Opt-Out, please", Command("quit")),
        ("stop all", Command("quit")),
        ("S.T.O.P.", Command("quit")),
        ("START", Command("start")),
        ("unstop.", Command("start")),
        ("un-stop", Command("start")),
        ("games", Command("games")),
        ("games of mine", Command("games")),
        ("score", Command("score")),
        ("score Bob", Command("score", nick="Bob")),
        ("score Bob Cid", Command("score", nick="Bob")),
        ("top", Command("top")),
        ("top ten", Command("top")),
        # Accents are put together.
        ("nick Zoe\u0308", Command("nick", nick="Zo\u00eb")),
        # Punctuation, characters without a glyph, and the width of letters do not count.
        ("Stop!", Command("quit")),
        ("\u201cSTOP\u201d.", Command("quit")),
        ("\u200bS\u00adTOP\ufeff\u2060", Command("quit")),
        ("\uff33\uff34\uff2f\uff30\uff01", Command("quit")),
        ("(games)", Command("games")),
        ("nick: Ann!", Command("nick", nick="Ann")),
        ("nick A\u200bn\ufe0fn\u3164", Command("nick", nick="Ann")),
        ("throw... rock, @Bob!!", Command("throw", "rock", "Bob")),
        ("throw:rock;Bob", Command("throw", "rock", "Bob")),
        ("score \u2018bob_\u2019", Command("score", nick="bob_")),
    ],
)
def test_a_text_asks_for_what_its_first_word_says(text: str, command: Command) -> None:
    assert read(text) == command


def test_a_text_of_one_word_names_no_play_and_nobody() -> None:
    assert read("top") == Command("top", play="", nick="")


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("", words.HELP),
        ("help", words.HELP),
        ("INFO", words.HELP),
        ("yes", words.unknown("yes")),
        ("?", words.HELP),
        ("help me", words.HELP),
        ("\uff1f", words.HELP),
        ("Help?!", words.HELP),
        ("?! throw", words.TOPICS["throw"]),
        ("\u200b...\u2026!", words.HELP),
        ("help help", words.HELP),
        ("help nick", words.TOPICS["nick"]),
        ("help N", words.TOPICS["nick"]),
        ("? t r Bob", words.TOPICS["throw"]),
        ("help Stop", words.TOPICS["quit"]),
        ("help games", words.TOPICS["games"]),
        ("help score", words.TOPICS["score"]),
        ("help top", words.TOPICS["top"]),
        ("dance with Bob", words.unknown("dance")),
        ("d" * 33, words.unknown("d" * 32 + "...")),
        ("nick", words.NICK_MISSING),
        ("nick Ann Bee", words.NICK_MALFORMED),
        ("nick Ann-Marie", words.NICK_MALFORMED),
        ("nick Ann+Bob", words.NICK_MALFORMED),
        ("nick " + "a" * 33, words.NICK_MALFORMED),
        ("throw", words.THROW_MISSING),
        ("throw rock", words.THROW_MISSING),
        ("throw rock Bob now", words.THROW_MISSING),
        ("throw stone Bob", words.no_such_play("stone")),
        ("throw " + "s" * 33 + " Bob", words.no_such_play("s" * 32 + "...")),
    ],
)
def test_a_text_that_asks_for_nothing_is_answered_with_what_may_help(text: str, reply: str) -> None:
    assert read(text) == Wrong(reply)


def test_what_someone_wrote_is_said_back_up_to_32_characters() -> None:
    assert quoted("a" * 32) == "a" * 32
    assert quoted("a" * 32 + "b") == "a" * 32 + words.MORE


def test_every_word_for_a_command_is_one_for_that_command_alone() -> None:
    known = [word for words_ in rules.COMMANDS.values() for word in words_]
    assert len(set(known)) == len(known)
