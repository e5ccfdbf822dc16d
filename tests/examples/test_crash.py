"""The demo shows what it says, and would say if it were not so."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "crash.py"


@pytest.mark.kill
def test_the_demo_loses_nothing(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, EXAMPLE],
        capture_output=True,
        text=True,
        timeout=50,
        env={"TMPDIR": str(tmp_path), "COLUMNS": "120"},
        cwd=EXAMPLE.parent.parent,
    )
    assert shown.stderr == ""
    assert shown.returncode == 0
    assert "No transfer was lost" in shown.stdout
    assert shown.stdout.count("unchanged") == 3
    [command] = re.findall(r"Look at the file with  (.*)", shown.stdout)
    inspected = subprocess.run(
        command.split(), capture_output=True, text=True, check=True, cwd=EXAMPLE.parent.parent
    )
    assert "account" in inspected.stdout


def test_the_demo_would_notice_a_loss(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = runpy.run_path(str(EXAMPLE))
    main = demo["main"]

    async def audit(url: str) -> tuple[dict[str, dict[str, int]], list[int], float]:
        return {"kept": {"payer": 0, "payee": 1, "amount": 5}}, [95, 105] + [100] * 998, 0.1

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    main.__globals__.update(audit=audit, run_and_kill=lambda url: (["kept"], 1.0))
    assert main() == 0
    main.__globals__.update(run_and_kill=lambda url: (["kept", "lost"], 1.0))
    assert main() == 1
    assert "A transfer was lost" in capsys.readouterr().out
    demo["START_BALANCE"] = 99
    main.__globals__.update(run_and_kill=lambda url: (["kept"], 1.0), START_BALANCE=99)
    assert main() == 1
