"""The code that one request runs stays short enough to read."""

import re
import sys
from collections.abc import Iterator

import pytest

from scripts.walk import ROOT, Walk, measure

# The most functions and switches between files.
GOALS = {"message": (130, 145), "HTTP accept": (190, 220)}


@pytest.fixture(scope="module")
def walks() -> Iterator[dict[str, Walk]]:
    with pytest.MonkeyPatch.context() as patch:
        # Other tests of this process may have imported it.
        patch.delitem(sys.modules, "opentelemetry.trace", raising=False)
        yield measure()


@pytest.mark.parametrize("name", GOALS)
def test_a_request_runs_no_more_code_than_a_reader_can_follow(
    walks: dict[str, Walk], name: str
) -> None:
    walk = walks[name]
    functions, switches = GOALS[name]
    assert 20 < walk.functions <= functions
    assert 10 < walk.files < walk.switches <= switches


def test_a_walk_goes_from_the_call_to_the_commit(walks: dict[str, Walk]) -> None:
    message, accept = walks["message"].lines(), walks["HTTP accept"].lines()
    assert message[0] == "app.py:App.send"
    assert sum(line.endswith("SQLiteEngine.commit") for line in message) >= 2
    assert accept[0] == "web/protocol.py:Protocol.get_buffer"
    assert "app.py:App.send" in accept
    assert any(line.endswith("SQLiteEngine.commit") for line in accept)


def test_the_page_of_walks_has_the_path_of_a_message(walks: dict[str, Walk]) -> None:
    page = (ROOT.parent / "docs" / "walks.md").read_text(encoding="utf-8")
    table = page.partition("## A message")[2].partition("Other paths")[0]
    hops = re.findall(r"^\| +\d+ \| `([\w/]+\.py)::([\w.]+)`", table, re.MULTILINE)
    assert len(hops) > 20
    path = iter(walks["message"].lines())
    assert [f"{file}:{name}" for file, name in hops if f"{file}:{name}" not in path] == []
