"""The example in the guide works as it stands."""

import re
import subprocess
import sys
from pathlib import Path

from onceward.app import App

GUIDE = Path(__file__).parents[2] / "docs" / "locks.md"


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_the_example_in_the_guide_works(tmp_path: Path) -> None:
    example, _ = snippets()
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


async def test_the_handler_in_the_guide_holds_the_lock_while_it_prints() -> None:
    app = App("memory://")
    printed: list[tuple[str, int]] = []

    class Printer:
        async def print(self, text: str, id_: str) -> None:
            status = await app.locks.status("printer")
            assert status is not None
            printed.append((text, status.held))

    _, handler = snippets()
    exec(handler, {"app": app, "printer": Printer()})
    async with app:
        sent = [await app.accept("labels", {"text": text}, key=text) for text in "abc"]
        ended = [await app.wait(receipt.id, 50) for receipt in sent]
    assert [job.state for job in ended] == ["done"] * 3
    assert sorted(printed) == [("a", 1), ("b", 1), ("c", 1)]
