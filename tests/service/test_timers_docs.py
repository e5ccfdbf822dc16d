"""What the guide to timers says works as it stands."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import WebhookVerificationError

from onceward.clock import Clock
from onceward.ids import Ids
from onceward.outward.signing import headers, new_secret
from tests.console import Console, blocks, commands, printed
from tests.needs import need_program
from tests.server_process import ROOT, environment, free_port

pytestmark = pytest.mark.timeout(300)  # for many processes on a busy machine

GUIDE = ROOT / "docs" / "timers.md"
BODY = b'{"n": 1}'


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def console(tmp_path: Path, port: int) -> Iterator[Console]:
    """A shell in which commands find the server, and the server its port."""
    settings = {
        **environment(),
        "ONCEWARD_PORT": str(port),
        "ONCEWARD_SERVER": f"http://localhost:{port}",
    }
    settings["PATH"] = f"{Path(sys.executable).parent}:{settings['PATH']}"
    with Console(tmp_path, settings) as console:
        yield console


def test_every_command_of_the_guide_works_as_it_stands(
    console: Console, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def here(text: str) -> str:
        return text.replace("8080", str(port))

    shown: list[str] = []
    tried = 0
    for block in blocks(GUIDE, "console"):
        for command, said in commands(block):
            wanted = [here(line) for line in said if line]
            if command.startswith("onceward serve"):
                shown = console.start(here(command), "Ctrl-C stops it")
            elif command.startswith("ID="):
                shown = console.run(f"ID={json.loads(shown[0])['id']}")
            else:
                shown = console.run(here(command))
            while "timers show" in command and not printed(shown, wanted):
                shown = console.run(here(command))  # the answer is just being recorded
            assert printed(shown, wanted), (command, shown)
            tried += 1
    assert tried > 12
    space: dict[str, Any] = {}
    exec(here(blocks(GUIDE, "python")[2]), space)
    asyncio.run(space["main"]())
    assert capsys.readouterr().out.splitlines() == ["2033-05-18T07:00:00.000Z", "cancelled"]


def test_the_application_of_the_guide_works_as_it_stands(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", blocks(GUIDE, "python")[1]],
        capture_output=True,
        text=True,
        timeout=50,
        cwd=tmp_path,
        env=environment(),
    )
    assert shown.stderr == ""
    assert shown.stdout.splitlines() == ["nightly active", "order-7 is waiting to be paid"]


def signed() -> tuple[str, dict[str, str]]:
    clock = Clock()
    secret = new_secret(Ids(clock.now_ms))
    return secret, headers([secret], "msg-1", clock.now_ms() // 1_000, BODY)


def test_the_receiver_in_python_verifies_what_is_signed() -> None:
    space: dict[str, Any] = {}
    exec(blocks(GUIDE, "python")[0], space)
    secret, made = signed()
    assert space["receive"](secret, made, BODY) == {"n": 1}
    with pytest.raises(WebhookVerificationError):
        space["receive"](secret, made, BODY + b" ")


def test_the_receiver_in_node_verifies_what_is_signed(tmp_path: Path) -> None:
    node = need_program("node")
    [script] = blocks(GUIDE, "js")
    secret, made = signed()
    old = {**made, "webhook-timestamp": "1"}
    script += f"""
const [secret, made, old] = {json.dumps([secret, made, old])};
const body = Buffer.from({json.dumps(BODY.decode())});
console.log(JSON.stringify(receive(secret, made, body)));
for (const wrong of [[secret, made, Buffer.from("{{}}")], [secret, old, body],
                     ["whsec_AAAA", made, body]]) {{
  try {{ receive(...wrong); console.log("taken"); }} catch (error) {{ console.log(error.message); }}
}}
"""
    (tmp_path / "receive.mjs").write_text(script)
    done = subprocess.run(
        [node, "receive.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=50
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        '{"n":1}',
        "not signed with this secret",
        "not of now",
        "not signed with this secret",
    ]
