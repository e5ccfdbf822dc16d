"""Words of a message and of a reply: the same, whatever a provider does to their characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.rps import words
from apps.rps.matching import is_same

TRIAL = "Sent from your Twilio trial account - "
REPLIES = [
    words.HELP,
    words.welcome("Zo\u00eb"),
    words.they_left("Ann"),
    words.tie("rock", "\u674e"),
]


@pytest.mark.parametrize("text", REPLIES)
def test_a_message_in_other_characters_is_the_same(text: str) -> None:
    for body in (text, TRIAL + text, f"  {text}\n", text.replace(" ", "\u00a0"), text.upper()):
        assert is_same(body, text)
    assert is_same(text.replace("\u00eb", "e").replace(",", "\uff0c").replace("'", "\u2019"), text)


@pytest.mark.parametrize("text", REPLIES)
def test_a_message_in_other_words_is_not(text: str) -> None:
    for body in ("", None, 7, "...", text[:-10], f"{text} more", text.replace(" ", ""), "hello"):
        assert not is_same(body, text)


def test_a_word_that_ends_like_another_is_another() -> None:
    assert not is_same(words.they_left("JoAnn"), words.they_left("Ann"))


@given(st.sampled_from(REPLIES), st.text(max_size=40))
def test_words_before_a_reply_do_not_matter(text: str, before: str) -> None:
    assert is_same(f"{before} {text}", text)
