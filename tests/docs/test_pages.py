"""All code in the documentation and the README does what it is said to do.

Each page is read from top to bottom, in an empty folder: what is to be saved is saved, what is to
be typed is typed, programs are run, and what they print is compared. Settings are loaded, JSON and
YAML are read, scripts for pages are checked against the types of the client. What cannot be run is
on a list, with the reason.
"""

import asyncio
import inspect
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward import limits
from onceward.cli import make_parser
from onceward.web.settings import load
from scripts import reference_python
from scripts.reference import PAGES as PAGES_MADE
from tests.console import commands, printed
from tests.docs.book import MADE, ROOT, Block, anchors, blocks, paths
from tests.docs.parts import CANNOT, PARTS, PRINTS, cannot, find, quoted
from tests.docs.reader import Reader, programs
from tests.docs.searches import SEARCHES
from tests.needs import need
from tests.quotes import links

pytestmark = pytest.mark.timeout(300)  # for many processes on a busy machine

PAGES = {page: blocks(page, path.read_text()) for page, path in paths().items()}
SHOWN = {page: found for page, found in PAGES.items() if found}
# What is only looked at, or checked for all pages together below.
READ_ELSEWHERE = {"js", "jsx", "html", "text", "nginx", "caddy", "dockerfile"}


@pytest.fixture(scope="module")
def quick() -> Iterator[Path]:
    with programs() as folder:
        yield folder


@pytest.mark.parametrize("page", [page for page in SHOWN if not quoted(paths()[page])])
def test_what_a_page_shows_is_so(page: str, tmp_path: Path, quick: Path) -> None:
    secrets = dict.fromkeys(re.findall(r'environ\["(\w+)"\](?! =)', str(SHOWN[page])), "s" * 32)
    with Reader(tmp_path, quick, secrets) as reader:
        for number, block in enumerate(SHOWN[page]):
            _try(block, SHOWN[page][number + 1 :], reader)


def _try(block: Block, behind: list[Block], reader: Reader) -> None:
    if (check := find(PARTS, block.page, block.text)) is not None:
        made = check(reader.here(block.text), reader)
        if inspect.iscoroutine(made):
            asyncio.run(made)
    elif block.language == "console":
        reader.type(block, cannot)
    elif block.language == "python":
        _run(block, behind, reader)
    elif block.language == "json":
        reader.save(block.file or "example.json", json.dumps(json.loads(block.text)))
    elif block.language == "toml":
        reader.save(block.file or "example.toml", block.text)
        load({}, {}, file=str(reader.folder / (block.file or "example.toml")))
    elif block.language in OTHERS:
        OTHERS[block.language](block)
    else:
        assert block.language in READ_ELSEWHERE, f"{block}: nothing is known of {block.language!r}"


def _run(block: Block, behind: list[Block], reader: Reader) -> None:
    """Run a program, or import what is to be saved, and compare what that prints."""
    if block.file is not None:
        reader.save(block.file, block.text)
        typed = "".join(one.text for one in behind if one.language == "console")
        if block.file not in typed:
            module = block.file.removesuffix(".py").replace("/", ".")
            reader.run("imports.py", f"import {module}\n")
        if f"python {block.file}" in typed or (said := _said(block, behind)) is None:
            return
        name = block.file
    else:
        said = _said(block, behind) or []
        name = f"block_{block.line}.py"
    text = block.text
    if (reader.folder / "rules.py").exists():
        text = f"from rules import *\n{text}"
    shown = reader.run(name, text)
    assert printed(shown, [reader.here(line) for line in said]), (str(block), shown)
    assert bool(shown) == bool(said), f"{block}: say what it prints: {shown}"


def _said(block: Block, behind: list[Block]) -> list[str] | None:
    """What a program is said to print: by the page, in a block behind it, or by the table."""
    if behind and behind[0].language == "text" and behind[0].follows:
        return behind[0].text.splitlines()
    return find(PRINTS, block.page, block.text)


def _unit(block: Block) -> None:
    """A unit of systemd: what it starts is a command of ours."""
    started = re.findall(r"^ExecStart=\S*/onceward (.*)$", block.text, re.MULTILINE)
    assert started, f"{block}: it starts nothing"
    for command in started:
        make_parser().parse_args(shlex.split(command))


def _yaml(block: Block) -> None:
    need("yaml")
    import yaml

    assert list(yaml.safe_load_all(block.text)), block


def _sql(block: Block) -> None:
    """Each statement ends, and is one of those that the page speaks of."""
    statements = [line for line in block.text.splitlines() if line.strip()]
    assert all(line.endswith(";") and line.startswith("ALTER ROLE ") for line in statements), block


OTHERS = {"ini": _unit, "yaml": _yaml, "sql": _sql, "": lambda block: None}


def test_a_command_that_is_not_run_is_understood_at_least() -> None:
    for page, found in SHOWN.items():
        for block in found:
            for command, _ in commands(block.text) if block.language == "console" else ():
                words = shlex.split(command.replace("\\\n", " "), comments=True)
                if cannot(page, command) and words[0] == "onceward":
                    make_parser().parse_args([word for word in words[1:] if word != "&"])


def test_nothing_is_excused_or_expected_that_is_not_there() -> None:
    texts = {page: [block.text for block in found] for page, found in SHOWN.items()}
    for page, words in [*PRINTS, *PARTS]:
        assert any(words in text for text in texts.get(page, ())), (page, words)
    typed = {
        (page, command)
        for page, found in SHOWN.items()
        for block in found
        if block.language == "console"
        for command, _ in commands(block.text)
    }
    for where, beginning in CANNOT:
        assert any(
            where in (page, "*") and (beginning == "*" or command.startswith(beginning))
            for page, command in typed
        ), (where, beginning)
    assert len(CANNOT) <= 12


LEASE = f"{limits.NODE_LEASE_MS / 1000:g} s"
SAID = {
    "concepts.md": (LEASE, f"at most {limits.COMMIT_WRITES_MAX} writes and 4 MB"),
    "credit.md": (f"`credit`, {limits.NODE_LEASE_MS / 1000:g}, {limits.SLOTS_DEFAULT} |",),
    "internals.md": (
        f"A database has {limits.SLOTS_DEFAULT} slots by default",
        f"at most {limits.COMMIT_WRITES_MAX} writes and 4 MB",
    ),
    "guides/deployment.md": (LEASE, f"{limits.MEMTABLE_BYTES >> 20} MiB for recent commits"),
    "guides/postgresql.md": (LEASE, f"({limits.SLOTS_DEFAULT}, `App(slots=…)`)"),
    "guides/workers.md": (f"`drain_s` ({limits.DRAIN_S:g})",),
    "rooms-protocol.md": (f"at most {limits.PRESENCES_BYTES_MAX >> 20} MiB together",),
    "security.md": (
        f"{limits.FRAME_BYTES_MAX >> 20} MiB",
        f"431 at {limits.HEAD_BYTES_MAX >> 10} KiB",
        f"{limits.ANSWER_BODY_BYTES_MAX >> 10} KiB are read",
        f"{limits.OUTWARD_TOTAL_S:g} s in all",
        f"at most {limits.ROOMS_PER_CONNECTION_MAX}",
    ),
}


@pytest.mark.parametrize("page", SAID)
def test_what_a_page_says_of_limits_is_so(page: str) -> None:
    text = " ".join(paths()[page].read_text().split())
    assert [words for words in SAID[page] if words not in text] == []


def test_every_link_leads_to_a_page_and_every_page_is_found() -> None:
    every = paths()
    folder = ROOT / "docs"
    made = {folder / MADE / f"{name}.md" for name in (*PAGES_MADE, *reference_python.pages())}
    named = {(folder / path).resolve() for path in _navigation()}
    for page, path in every.items():
        for link in links(path):
            target = (path.parent / link.partition("#")[0]).resolve() if link[0] != "#" else path
            assert target.exists() or target in made, f"{page}: {link}"
            named.add(target)
    lost = [path for path in every.values() if path.is_relative_to(folder) and path not in named]
    assert lost == []


def test_every_link_to_a_section_leads_to_a_heading() -> None:
    every = paths()
    headings = {path.resolve(): anchors(path.read_text()) for path in every.values()}
    for page, path in every.items():
        for link in links(path):
            target, _, anchor = link.partition("#")
            place = (path.parent / target).resolve() if target else path.resolve()
            if anchor and place in headings:
                assert anchor in headings[place], f"{page}: {link}"


@pytest.mark.parametrize("words", SEARCHES)
def test_a_page_that_a_search_must_find_is_about_it(words: str) -> None:
    """`make docs` searches the built site (tests/docs/built_site.py)."""
    text = paths()[f"{SEARCHES[words].rstrip('/')}.md"].read_text()
    first = text.split("\n\n")[1]
    said = "\n".join([first, *re.findall(r"^#+ (.*)", text, re.MULTILINE)]).lower()
    assert all(word in said for word in words.split())


def test_no_page_opens_a_marked_section() -> None:
    """mkdocs parses pages as HTML, and fails at `<![` unless a name follows."""
    assert [page for page, path in paths().items() if "<![" in path.read_text()] == []


def _navigation() -> list[str]:
    return re.findall(r"([\w/-]+\.md)", (ROOT / "mkdocs.yml").read_text())
