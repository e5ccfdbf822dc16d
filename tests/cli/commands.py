"""Runs commands against a server."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from unittest.mock import patch

from onceward import cli
from onceward.web.auth import digest_of
from tests.server_process import ONCEWARD, ServerProcess, environment

KEY = "ow_" + 64 * "7"
SETTINGS = f"""
[[keys]]
name = "operator"
digest = "{digest_of(KEY)}"
scopes = ["all"]
"""


class Command:
    """Runs commands against a server: here, which is quick, or as processes of their own."""

    def __init__(
        self,
        server: ServerProcess,
        main: Callable[[Sequence[str]], int] = cli.main,
        name: str = "onceward",
    ) -> None:
        """`main` is the program that runs here, and `name` is how its errors begin."""
        self.main = main
        self.name = name
        self.environment = {**environment(), "ONCEWARD_SERVER": server.url, "ONCEWARD_KEY": KEY}

    def run(self, *arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
        out, err = io.StringIO(), io.StringIO()
        with (
            patch.dict(os.environ, self.environment, clear=True),
            patch("sys.stdin", io.StringIO(text)),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = self.main(arguments)
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    def start(self, *arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*ONCEWARD, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=50,
            env=self.environment,
        )

    def said(self, *arguments: str, text: str = "") -> str:
        """What a command that goes well prints."""
        shown = self.run(*arguments, text=text)
        assert (shown.stderr, shown.returncode) == ("", 0)
        return shown.stdout

    def listed(self, *arguments: str) -> tuple[str, str]:
        """What a command that goes well prints, and its notes about that."""
        shown = self.run(*arguments)
        assert shown.returncode == 0
        return shown.stdout, shown.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self.said(*arguments, "--json"))

    def refused(self, *arguments: str) -> tuple[str, int]:
        """The one line and the exit code of a command that fails."""
        shown = self.run(*arguments)
        assert shown.stdout == ""
        assert shown.stderr.startswith(f"{self.name}: ")
        assert shown.stderr.count("\n") == 1
        return shown.stderr.strip(), shown.returncode

    def on_terminal(
        self, *arguments: str, typed: bytes = b"", before: str = "pass"
    ) -> tuple[str, int]:
        """What is shown on a terminal of 80 columns, without colours, and the exit code."""
        script = f"import sys; from onceward import cli; {before}; sys.exit(cli.main(sys.argv[1:]))"
        parent, child = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdin=child,
            stdout=child,
            stderr=child,
            env={**self.environment, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
        )
        os.close(child)
        os.write(parent, typed)
        text = b""
        try:
            while piece := os.read(parent, 4_096):
                text += piece
        except OSError:
            pass  # the end, on Linux
        os.close(parent)
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.decode())
        return plain.replace("\r\n", "\n"), process.wait(timeout=50)
