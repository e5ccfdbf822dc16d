"""The sample applications of frameworks pass their own tests."""

import subprocess
import sys

from tests.needs import need
from tests.server_process import ROOT, environment


def test_the_shop_in_flask() -> None:
    need("flask")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "examples/flask_shop"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
