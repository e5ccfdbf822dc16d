"""The example in the guide works as it stands."""

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "locks.md"


def test_the_example_in_the_guide_works(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    for number in (1, 2):
        shown = subprocess.run(
            [sys.executable, "-c", example],
            capture_output=True,
            text=True,
            timeout=50,
            cwd=tmp_path,
        )
        assert shown.stderr == ""
        assert shown.stdout.splitlines() == [
            f"token {number}",
            f"invoice {number}",
            "the lock on invoice-run was held by others",
            "['account-7', 'account-9']",
            "1 of 3",
        ]
