"""The demo says what to try, and that works as it stands."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.server_process import environment, free_port

pytestmark = pytest.mark.timeout(300)  # for many processes on a busy machine

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "demo.py"


@contextmanager
def start(folder: Path, port: str) -> "Iterator[subprocess.Popen[str]]":
    with subprocess.Popen(
        [sys.executable, EXAMPLE, port],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment(),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: "subprocess.Popen[str]", end: str) -> str:
    assert process.stdout is not None
    text = ""
    while end not in text:
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        text += line
    return text


def test_what_the_demo_says_to_try_works(tmp_path: Path) -> None:
    port = str(free_port())
    for number, stopped_by in ((0, signal.SIGKILL), (1, signal.SIGINT)):
        with start(tmp_path, port) as demo:
            said = read_until(demo, "stays sold.")
            commands = re.findall(r"^  (\S(?:\\\n|.)*)", said, re.MULTILINE)
            shown = []
            for command in commands:
                done = subprocess.run(
                    command,
                    shell=True,
                    capture_output=True,
                    text=True,
                    timeout=50,
                    cwd=tmp_path,
                    env=environment(),
                )
                assert done.returncode == 0, (command, done.stderr)
                shown.append(done.stdout)
            sent, curled, queues, set_, timer, inspected = shown
            assert ("was accepted before" if number else "is accepted") in sent
            assert '"sold, 4 left"' in sent
            assert '"duplicate":true' in curled
            assert '"sold, 4 left"' in curled
            assert "orders" in queues
            assert ("was set before" if number else "is set") in set_
            assert "reminder" in timer
            assert "stock" in inspected
            demo.send_signal(stopped_by)
            rest, err = demo.communicate(timeout=50)
    assert (rest, demo.returncode) == ("The shop is closed.\n", 0)
    assert "Traceback" not in err


def test_its_front_page_leads_to_phones_that_play(tmp_path: Path) -> None:
    port = str(free_port())
    with start(tmp_path, port) as demo:
        assert f"Open http://127.0.0.1:{port} in a browser" in read_until(demo, "stays sold.")
        with urlopen(f"http://127.0.0.1:{port}/") as page:
            assert page.url == f"http://127.0.0.1:{port}/rps/phones"
            assert b"phones/phones.js" in page.read()
        with urlopen(f"http://127.0.0.1:{port}/board") as page:
            assert page.url == f"http://127.0.0.1:{port}/board/welcome"
        texts = f"http://127.0.0.1:{port}/rps/phones/texts"
        said = {"id": "text-0001", "from": "+12025550101", "text": "nick Ann"}
        sent = Request(texts, json.dumps(said).encode(), {"Content-Type": "application/json"})
        with urlopen(sent) as answer:
            assert json.load(answer) == {"duplicate": False}
        with urlopen(f"{texts}?after=1") as answer:  # which waits for the reply
            [reply] = json.load(answer)["texts"]
        assert reply["text"].startswith("You are Ann.")


def test_a_port_that_is_taken_is_said_to_be_so(tmp_path: Path) -> None:
    port = str(free_port())
    with start(tmp_path, port) as first:
        read_until(first, "stays sold.")
        with start(tmp_path, port) as second:
            _, err = second.communicate(timeout=50)
        first.terminate()
        first.communicate(timeout=50)
    assert (first.returncode, second.returncode) == (0, 1)
    assert err.startswith(f"demo: cannot listen at 127.0.0.1:{port}")
    assert "make demo PORT=" in err
    assert err.count("\n") == 1


def test_a_port_that_is_none_is_said_to_be_so(tmp_path: Path) -> None:
    with start(tmp_path, "http") as demo:
        _, err = demo.communicate(timeout=50)
    assert (err, demo.returncode) == ("demo: a port is a number, not 'http'\n", 1)
