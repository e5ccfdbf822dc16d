"""Runs `onceward` and `python` for guides in no time: a process that has loaded all of the package
waits, and forks for each command that is to be run.

The programs that shells find are `SHIM` under these names: it passes its arguments, its folder, its
environment and its three files on, and ends as the fork does. Who kills it kills that, too.

    python -m tests.docs.preloaded SOCKET
"""

import gc
import importlib
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

LOADED = (
    *("onceward.app", "onceward.cli", "onceward.client", "onceward.web.serve", "onceward.sync"),
    *("apps.rps.twilio", "apps.rps.sns", "apps.board", "fastapi"),
    *("apps.tictactoe", "onceward.testing.simulation.handlers", "uvicorn", "uvloop"),
)
READY = b"ready"
# As short as it gets: it starts for each command.
SHIM = """\
import os, signal, socket, sys
way = socket.socket(socket.AF_UNIX)
way.connect({address!r})
said = "\\0".join([os.getcwd(), str(len(sys.argv)), *sys.argv,
                  *[f"{{name}}={{value}}" for name, value in os.environ.items()]])
socket.send_fds(way, [b"%09d" % len(said.encode())], [0, 1, 2])
way.sendall(said.encode())
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, frame: way.sendall(bytes([number])))
code = way.recv(1)
os._exit(code[0] if code else 255)
"""


def install(folder: Path, address: str) -> None:
    """Put the programs into a folder, for the PATH of a shell."""
    folder.mkdir()
    for name in ("onceward", "python", "uvicorn", "flask"):
        (folder / name).write_text(f"#!{sys.executable} -IS\n{SHIM.format(address=address)}")
        (folder / name).chmod(0o755)


def main() -> None:
    [address] = sys.argv[1:]
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    sys.stdout.buffer.write(READY + b"\n")
    sys.stdout.flush()
    selector = selectors.DefaultSelector()
    selector.register(listening, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                return  # who has started it is gone
            if key.fileobj is listening:
                _begin(listening, selector)
            elif isinstance(key.fileobj, socket.socket):
                _told(key.fileobj, key.data, selector)
            else:
                _ended(key.fileobj, *key.data, selector)


def _begin(listening: socket.socket, selector: selectors.BaseSelector) -> None:
    way, _ = listening.accept()
    length, files, _, _ = socket.recv_fds(way, 9, 3)
    said = b""
    while len(said) < int(length):
        said += way.recv(1 << 16)
    pid = os.fork()
    if not pid:
        selector.close()
        listening.close()
        way.close()
        _run(files, said.decode().split("\0"))
    for file in files:
        os.close(file)
    handle = os.pidfd_open(pid)
    selector.register(handle, selectors.EVENT_READ, (way, pid))
    selector.register(way, selectors.EVENT_READ, pid)


def _told(way: socket.socket, pid: int, selector: selectors.BaseSelector) -> None:
    number = way.recv(1)
    os.kill(pid, number[0] if number else signal.SIGKILL)
    if not number:
        selector.unregister(way)


def _ended(handle: Any, way: socket.socket, pid: int, selector: selectors.BaseSelector) -> None:
    selector.unregister(handle)
    os.close(handle)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        selector.unregister(way)
        way.sendall(bytes([code if code >= 0 else 128 - code]))
    except (KeyError, OSError):
        pass  # it was killed
    way.close()


def _run(files: list[int], said: list[str]) -> NoReturn:
    """Be the program that was asked for."""
    folder, count, *words = said
    argv, settings = words[: int(count)], words[int(count) :]
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(setting.split("=", 1) for setting in settings)
    code = 1
    try:
        code = _program(argv)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _program(argv: list[str]) -> int:
    name = os.path.basename(argv[0])
    if name == "onceward":
        from onceward.cli import main as onceward

        sys.argv = argv
        return onceward(argv[1:])
    if name in ("uvicorn", "flask"):
        argv = ["python", "-m", *argv]
        argv[2] = name
    first, *rest = argv[1:]
    if first == "-m":
        sys.argv, sys.path[0] = rest, os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = argv[1:], os.path.dirname(os.path.abspath(first))
        runpy.run_path(first, run_name="__main__")
    return 0


if __name__ == "__main__":
    main()
