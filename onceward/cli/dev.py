"""`onceward dev`: runs an application for development, and again after each change of its files.

This process watches files and runs the server as a child. Before it starts the next child, it stops
the one before with SIGTERM, which drains it. Jobs that are not done then are released, or taken
over from a killed process, and continue in the next one.
"""

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from onceward.cli.parser import Parser
from onceward.cli.serve import add_settings, flags
from onceward.errors import OncewardError
from onceward.web.settings import Settings, load

_CHILD = "ONCEWARD_DEV_CHILD"
"""Set for a child: the end of a pipe that closes when this process is killed, and the text that the
child prints when it runs."""
_OPTIONS = (
    *("host", "port", "database", "queues", "concurrency", "drain_s", "log_level"),
    *("webhook_allow", "server_key_file"),
)
_DRAIN_S = 3.0
# After the time to drain, for a process whose event loop is blocked.
_KILL_S = 10.0
_POLL_S = 0.25
_SETTLE_S = 0.05
# The exit code of a child whose application cannot be imported.
_BROKEN = 1
_LEFT_OUT = ("__pycache__", "node_modules", "site-packages")

Files = dict[str, tuple[int, int]]
"""The time and size of each file by its path."""


def fill(parser: Parser) -> None:
    """Add the options of `onceward dev`."""
    parser.description = (
        "Run an application for development, with the HTTP API and the console, and reload it "
        "when a Python file in this folder or below changes. It prints one line for each attempt "
        "of a job, and the traceback of an error. An application without a database URL uses "
        "sqlite:///onceward.db. At a reload, running jobs have --drain-s to finish; the rest "
        "continue afterwards. Ctrl-C stops it with exit code 0."
    )
    parser.epilog = "example: onceward dev shop:app"
    help_ = "The App object, as in shop:app; or the setting app"
    parser.add_argument("app", metavar="MODULE:NAME", nargs="?", help=help_)
    add_settings(parser, _OPTIONS, Settings(drain_s=_DRAIN_S))
    parser.set_defaults(run=_dev)


def _dev(arguments: argparse.Namespace) -> int:
    given = flags(arguments)
    settings, _ = load({"drain_s": _DRAIN_S} | given, file=arguments.config)
    if not settings.app:
        raise OncewardError(
            "no application to run; use `onceward dev shop:app`", code="bad_settings"
        )
    if _CHILD not in os.environ:
        return _supervise(settings.drain_s + _KILL_S)
    given = {name: value for name, value in given.items() if value is not None}
    settings, found = load({"drain_s": _DRAIN_S, **given}, file=arguments.config)
    from onceward.cli.dev_output import explain_import, show_attempts

    sys.path.insert(0, "")
    if not explain_import(settings.app.partition(":")[0]):
        return _BROKEN
    from onceward.web.serve import serve  # here: what only a server needs takes long to load

    links: list[str] = []

    pipe, _, told = os.environ[_CHILD].partition(" ")

    def announce(url: str) -> None:
        print(told.format(app=settings.app, url=url))
        print(f"  {links[0]} opens the console, once", flush=True)

    # No keys: dev mode, for callers on this machine only.
    settings = msgspec.structs.replace(settings, keys=(), jwt=())
    show = partial(show_attempts, supervisor=int(pipe))
    serve(settings, announce, links.append, found, developing=show)
    return 0


def _supervise(kill_s: float) -> int:
    """Run children until Ctrl-C, SIGTERM, or an error that no change of the application repairs;
    returns the exit code."""
    told = "onceward dev runs {app} at {url}; it reloads on changes, Ctrl-C stops it"
    files = _files()
    theirs, ours = os.pipe()
    while True:
        child = subprocess.Popen(
            [sys.executable, "-m", "onceward", *sys.argv[1:]],
            env={**os.environ, _CHILD: f"{theirs} {told}"},
            pass_fds=[theirs],
            # A terminal sends Ctrl-C to the child as well. It waits for the SIGTERM from here.
            preexec_fn=_ignore_interrupts,
        )
        try:
            changed = _changed(child, files)
        except (KeyboardInterrupt, SystemExit):
            _stop(child, kill_s)
            os.close(ours)
            return 0
        if not changed:
            return child.returncode
        names = ", ".join(changed[:3]) + (" and more" if len(changed) > 3 else "")
        print(f"{names} changed; reloading", flush=True)
        _stop(child, kill_s)
        told = "reloaded {app} at {url}"


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _changed(child: "subprocess.Popen[bytes]", files: Files) -> list[str]:
    """Wait for changes, and update `files`; returns the names of the changed ones. None: the child
    has ended with an error that no change of the application repairs."""
    ended = False
    pause = threading.Event()
    while True:
        if not ended and child.poll() is not None:
            if child.returncode > _BROKEN:
                return []
            print("waiting for a change of a Python file", flush=True)
            ended = True
        found = _files()
        if found != files:
            pause.wait(_SETTLE_S)
            while (later := _files()) != found:  # a program is still writing
                found = later
                pause.wait(_SETTLE_S)
            names = {name for name, _ in found.items() ^ files.items()}
            files.clear()
            files.update(found)
            return sorted(names)
        pause.wait(_POLL_S)


def _stop(child: "subprocess.Popen[bytes]", kill_s: float) -> None:
    """Stop a child: drain it, or kill it if it does not end in time. Ctrl-C ends the wait for its
    handlers."""
    while child.poll() is None:
        child.terminate()
        try:
            child.wait(kill_s)
        except subprocess.TimeoutExpired:
            print("a handler blocks the event loop: killed; its jobs run again", flush=True)
            child.kill()
            child.wait()
        except (KeyboardInterrupt, SystemExit):
            continue


def _files() -> Files:
    """The Python files in the current folder and below, without environments and hidden folders."""
    return dict(_walk(Path(".")))


def _walk(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return  # removed in between, or not readable
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _LEFT_OUT and not entry.name.startswith("."):
                    yield from _walk(folder / entry.name)
            elif entry.name.endswith(".py"):
                status = entry.stat()
                yield str(folder / entry.name), (status.st_mtime_ns, status.st_size)
        except OSError:
            continue
