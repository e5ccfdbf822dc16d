"""The built documentation: its search, its links, and its pages in light and dark.

`make docs` runs this file after the build. `make test` does not collect it.
"""

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.browser import grievances, launched, visiting
from tests.docs.book import ROOT
from tests.docs.searches import SEARCHES
from tests.needs import missing

SITE = ROOT / "site"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    if not (SITE / "index.html").is_file():
        missing("there is no site/: `make docs` builds it")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=SITE)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


def first_found(page: Any, words: str) -> str:
    """The page that a search finds first, by its path."""
    query = page.locator("[data-md-component=search-query]")
    query.fill("")
    query.press("Backspace")  # the search listens to keys
    page.wait_for_selector(".md-search-result__link", state="detached")
    query.fill(words[:-1])
    query.press(words[-1])  # one search for the whole words
    page.wait_for_selector(".md-search-result__link")
    link = page.locator(".md-search-result__item > .md-search-result__link").first
    return re.sub(r"[?#].*", "", urlsplit(link.get_attribute("href")).path.lstrip("/"))


def test_a_search_finds_the_right_page_first(browser: Any, url: str) -> None:
    with visiting(browser) as page:
        page.goto(url)
        page.keyboard.press("/")
        assert {words: first_found(page, words) for words in SEARCHES} == SEARCHES


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["", "messages/", "reference/python/onceward/"])
def test_a_page_can_be_used_by_everybody(browser: Any, url: str, path: str, scheme: str) -> None:
    with visiting(browser, color_scheme=scheme) as page:
        page.goto(url + path)
        shown = page.locator("body").get_attribute("data-md-color-scheme")
        assert shown == {"light": "default", "dark": "slate"}[scheme]
        assert grievances(page) == []


def test_only_written_pages_have_an_edit_link_and_only_with_an_address(tmp_path: Path) -> None:
    assert 'rel="edit"' not in (SITE / "locks/index.html").read_text()
    python = ROOT / ".venv-docs" / "bin" / "python"
    address = "https://example.com/you/onceward"
    subprocess.run(
        [python, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        check=True,
        cwd=ROOT,
        timeout=120,
        env={
            **os.environ,
            "ONCEWARD_REPO_URL": address,
            "ONCEWARD_EDIT_URI": "edit/main/docs/",
            "NO_MKDOCS_2_WARNING": "1",
        },
    )
    assert (
        f'href="{address}/edit/main/docs/locks.md"' in (tmp_path / "locks/index.html").read_text()
    )
    assert 'rel="edit"' not in (tmp_path / "reference/errors/index.html").read_text()
