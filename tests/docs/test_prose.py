"""The check of texts: it finds what docs/writing.md forbids, and leaves code alone."""

from pathlib import Path

import pytest

from scripts.prose import ALLOWED_PER_1000, GUIDE, Guide, Text, default_paths, texts


@pytest.fixture(scope="module")
def guide():
    return Guide(GUIDE.read_text(encoding="utf-8"))


def found(guide, tmp_path, name, source):
    path = tmp_path / name
    path.write_text(source, encoding="utf-8")
    return [(hit.where.line, hit.found) for text in texts([path]) for hit in guide.hits(text)]


@pytest.mark.parametrize(
    "wrong",
    [
        "It retries what was lost.",
        "Ask who holds the lock, or by who has waited.",
        "Let the timer fire.",
        "The server says no.",
        "The client is told so.",
        "It works on SQLite, too.",
        "Nobody gets a stale value.",
        "Cancel it; twice is once.",
        "The job goes on.",
        "Wait for so long.",
        "This sentence has far more words than a sentence may have in our docs, because it adds "
        "one thing after another without any stop, which tires everyone who tries to read it "
        "to its very end in one breath.",
    ],
)
def test_wrong_phrases_are_found(guide, wrong):
    assert list(guide.hits(Text(Path("x.md"), 1, "docs", wrong)))


@pytest.mark.parametrize(
    "right",
    [
        "What is Onceward?",
        "Users who wait see their position.",
        "The request is retried as long as the lease lasts.",
        "Jobs with the same order key run in order.",
        "A batch takes as many waiting jobs as fit, so long ones wait.",
        "A long key takes three times as long. The file is readable only by its owner.",
    ],
)
def test_plain_sentences_are_not_reported(guide, right):
    assert not list(guide.hits(Text(Path("x.md"), 1, "docs", right)))


def test_markdown_is_read_without_code(guide, tmp_path):
    page = "# Title\n\n```python\nx = 'it says so'\n```\n\n`nobody`.\n\n| a | it says so |\n"
    assert found(guide, tmp_path, "a.md", page) == [(9, "says")]


def test_docstrings_comments_errors_and_help_are_read(guide, tmp_path):
    source = '''"""It tells."""
# Nobody reads it.
def f(parser):
    """Returns."""
    parser.add_argument("--x", help="it says x")
    raise ValueError(f"{parser} goes on")
'''
    assert [one for _, one in sorted(found(guide, tmp_path, "a.py", source))] == [
        "tells",
        "Nobody",
        "says",
        "goes on",
    ]


def test_pages_and_scripts_are_read(guide, tmp_path):
    page = "<p>It says <code>nobody</code></p><script>let the = 1</script><img alt='Nobody'>"
    assert [one for _, one in found(guide, tmp_path, "a.html", page)] == ["says", "Nobody"]
    script = "const a = `it says ${x}`; // goes on\nlet the = 1;\n"
    assert [one for _, one in found(guide, tmp_path, "a.js", script)] == ["goes on", "says"]


def test_the_texts_of_the_project_have_few_wrong_phrases(guide):
    words, hits = 0, []
    for text in texts(default_paths()):
        words += len(text.text.split())
        hits += [f"{hit.where.path}:{hit.where.line}: {hit.found}" for hit in guide.hits(text)]
    assert words > 100_000
    assert 1_000 * len(hits) / words <= ALLOWED_PER_1000, "\n".join(hits[-20:])
