"""`onceward work` runs the handlers of an application, as a process of its own."""

import signal
import subprocess
from pathlib import Path

import pytest

from onceward.app import App
from tests.server_process import ONCEWARD, environment

SHOP = """
import onceward

app = onceward.App("sqlite:///shop.db")


@app.handler("orders")
async def order(job):
    print("sold a", job.body["item"], flush=True)
"""


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*ONCEWARD, "work", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment(),
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_handlers_run_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    async with App(f"sqlite:///{tmp_path / 'shop.db'}") as app:
        receipt = await app.send("orders", {"item": "lamp"}, key="order-1")
    with start(tmp_path, "shop:app") as process:
        assert process.stderr is not None
        assert process.stdout is not None
        said = process.stderr.readline()
        assert said == "working on the jobs of shop:app; Ctrl-C stops it\n"
        assert process.stdout.readline() == "sold a lamp\n"
        process.send_signal(number)
        assert process.wait(timeout=50) == 0
        assert process.stderr.read() == ""
    async with App(f"sqlite:///{tmp_path / 'shop.db'}") as app:
        assert (await app.job(receipt.id)).state == "succeeded"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("nowhere:app", "cannot load 'nowhere:app': No module named 'nowhere'"),
        ("shop:till", "cannot load 'shop:till': "),
        ("shop:onceward", "'shop:onceward' is not an onceward.App"),
        ("shop:plain", "'shop:plain' is an onceward.sync.App, which runs in its own program"),
        (":app", "cannot load ':app': "),
    ],
)
def test_an_application_that_is_not_there_is_one_line(tmp_path: Path, path: str, says: str) -> None:
    plain = 'from onceward.sync import App\n\nplain = App("memory://")\n'
    (tmp_path / "shop.py").write_text(SHOP + plain)
    with start(tmp_path, path) as process:
        out, err = process.communicate(timeout=50)
    assert (out, process.returncode) == ("", 78)
    assert err.startswith(f"onceward: {says}")
    assert err.endswith("[bad_settings]\n")
    assert err.count("\n") == 1


async def test_a_database_that_another_process_owns_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    async with App(f"sqlite:///{tmp_path / 'shop.db'}") as app:
        await app.send("orders", {"item": "lamp"}, key="order-1")
    with start(tmp_path, "shop") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "sold a lamp\n"
        with start(tmp_path, "shop") as second:
            _, err = second.communicate(timeout=50)
        first.terminate()
        first.communicate(timeout=50)
    assert (first.returncode, second.returncode) == (0, 65)
    assert err.splitlines()[-1].endswith("[database_in_use]")
