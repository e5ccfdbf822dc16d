"""A worker ends when the process is gone that has started it, also if that could not say so."""

import signal
import subprocess
import sys

from apps.demo.settings import Settings
from tests.apps.demo.running import children, wait_for_end
from tests.server_process import environment

TOLD = Settings(parent=0, port=9, database="", outside="", control="", secret="")
SHELL = "DEMO_PARENT=$$ $PYTHON -m apps.demo.process worker alone & read never"


def test_a_worker_whose_parent_is_killed_ends() -> None:
    with subprocess.Popen(
        ["sh", "-c", SHELL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**environment(), **TOLD.environment(), "PYTHON": sys.executable},
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "alone\n"
        [worker] = children(parent.pid)
        parent.send_signal(signal.SIGKILL)
        wait_for_end([worker])
