"""Troubleshooting has every error code, and pages have the words that people search for."""

import re

import pytest

from onceward.errors import TABLE
from tests.docs.book import paths

ROWS = re.findall(
    r"^\| `(\w+)` \| (.+?) \| (.+?) \|$",
    paths()["troubleshooting.md"].read_text(),
    re.MULTILINE,
)
# Words that people search for: the page that must have them in a heading or its first paragraph.
WORDS = {
    "background job": "messages.md",
    "idempotency": "messages.md",
    "retry policy": "faq.md",
    "distributed lock": "faq.md",
    "cron": "troubleshooting.md",
    "presence": "troubleshooting.md",
    "troubleshooting": "troubleshooting.md",
    "exactly once": "faq.md",
}


def test_every_error_code_has_a_cause_and_a_remedy() -> None:
    assert sorted(code for code, _, _ in ROWS) == sorted(TABLE)


def test_temporary_errors_are_marked_as_such() -> None:
    marked = {code for code, cause, _ in ROWS if cause.startswith("*retry*")}
    assert marked == {code for code, kind in TABLE.items() if kind.retry}


@pytest.mark.parametrize("words", WORDS)
def test_words_that_people_search_for_are_at_the_top(words: str) -> None:
    text = paths()[WORDS[words]].read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    first = next(part for part in text.split("\n\n") if not part.startswith("#"))
    assert any(words in part.lower() for part in [*headings, " ".join(first.split())])
