"""A real server on a machine that boots with a wrong clock."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward import cli
from tests import server_process
from tests.server_process import ROOT, ServerProcess

WRONG_CLOCK = """
import time

_time_ns = time.time_ns
time.time_ns = lambda: _time_ns() + 12 * 365 * 86_400 * 10**9
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path)
    yield server
    server.__exit__()


def run(*arguments: str, url: str) -> int:
    return cli.main([*arguments, "--server", url, "--json"])


def test_a_server_with_a_wrong_clock_forgets_no_key_until_it_is_confirmed(
    server: ServerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def said(*arguments: str) -> dict[str, object]:
        assert run(*arguments, url=server.url) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    server.start()
    server.until_ready()
    said("queues", "configure", "orders", "--key-retention-s", "1")
    first = said("send", "orders", "1", "--key", "order-1")
    assert said("jobs", "cancel", str(first["id"]))["state"] == "cancelled"
    server.stop()

    (tmp_path / "sitecustomize.py").write_text(WRONG_CLOCK)
    path = f"{tmp_path}:{ROOT}"
    real = server_process.environment
    monkeypatch.setattr(server_process, "environment", lambda: {**real(), "PYTHONPATH": path})
    server.start()
    server.until_ready()
    clock = said("server", "clock")
    assert clock["held"] is True
    again = said("send", "orders", "1", "--key", "order-1")
    assert (again["id"], again["duplicate"]) == (first["id"], True)
    assert "alarm clock_ahead" in server.log.read_text()

    clock = said("server", "confirm-clock")
    assert clock["held"] is False
    assert abs(int(str(clock["now_ms"])) - int(str(clock["wall_ms"]))) < 60_000
    later = said("send", "orders", "1", "--key", "order-1")
    assert later["duplicate"] is False, "by the confirmed clock it has expired"
