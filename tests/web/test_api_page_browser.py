"""The page /docs of a server in a real browser: groups, search, samples, light and dark."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import grievances, launched, visiting
from tests.server_process import ServerProcess

pytestmark = pytest.mark.timeout(240)  # for a browser on a busy machine

SIZES = {"desktop": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServerProcess(tmp_path_factory.mktemp("docs")) as server:
        yield server.url


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


def shown(page: Any) -> list[str]:
    """The ids of the operations that can be seen."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('details')]"
        ".filter((one) => one.checkVisibility()).map((one) => one.id)"
    )
    return found


def test_operations_are_grouped_and_found_by_their_words(browser: Any, url: str) -> None:
    with visiting(browser, viewport=SIZES["desktop"]) as page:
        page.goto(f"{url}/docs")
        page.locator("details").first.wait_for()
        groups = page.locator("main > h2").all_inner_texts()
        assert groups[:4] == ["Connect", "Jobs and queues", "Locks", "Timers and webhooks"]
        assert len(shown(page)) > 100
        search = page.get_by_role("searchbox", name="Search operations")
        search.fill("renew locks")
        assert shown(page) == ["locks_renew"]
        assert page.locator("main > h2:visible").all_inner_texts() == ["Connect", "Locks"]
        search.fill("jobs.retry")
        assert shown(page) == ["jobs_retry"]
        search.fill("nothing of this kind")
        assert shown(page) == []
        page.get_by_text("No operation has these words.").wait_for()
        search.fill("")
        assert len(shown(page)) > 100


def test_a_language_is_chosen_once_for_all_samples(browser: Any, url: str) -> None:
    with visiting(browser, viewport=SIZES["desktop"]) as page:
        page.goto(f"{url}/docs#jobs_retry")
        opened = page.locator("details[open]")
        opened.locator("pre").wait_for()
        assert f'curl -X POST "{url}/v1/jobs/' in opened.locator("pre").inner_text()
        opened.get_by_role("button", name="JavaScript").click()
        assert opened.locator("pre").inner_text().startswith("await client.jobs.retry(")
        page.goto(f"{url}/docs#locks_acquire")
        page.reload()
        text = page.locator("#locks_acquire pre").inner_text()
        assert "leaseS: 30" in text
        assert f'from "{url}/http.js"' in page.locator(".samples pre").first.inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_everybody_can_use_the_page(browser: Any, url: str, scheme: str, size: str) -> None:
    with visiting(browser, viewport=SIZES[size], color_scheme=scheme) as page:
        page.goto(f"{url}/docs#timers_create")
        page.locator("details[open] table").first.wait_for()
        assert grievances(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") == SIZES[size]["width"]


def test_the_theme_is_that_of_the_console(browser: Any, url: str) -> None:
    with visiting(browser, color_scheme="dark") as page:
        page.goto(f"{url}/docs")
        ground = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(ground) == "rgb(15, 19, 19)"
        page.get_by_role("button", name="Theme: auto").click()
        assert page.evaluate("localStorage.getItem('onceward-theme')") == "light"
        assert page.evaluate(ground) == "rgb(246, 247, 247)"
