import json
import re
from pathlib import Path
from typing import Any

import pytest

from scripts.audit import judge


def report(*packages: dict[str, Any]) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


FINE = {"name": "rich", "version": "15.0", "vulns": []}
SKIPPED = {"name": "apsw", "skip_reason": "Dependency not found and could not be audited"}
BAD = {"name": "idna", "version": "3.4", "vulns": [{"id": "CVE-1", "fix_versions": ["3.7"]}]}


def test_an_audit_of_everything_is_complete() -> None:
    sentence, complete, found = judge(report(FINE), "")
    assert (sentence, complete, found) == (
        "1 of 1 locked packages looked up, 0 known vulnerabilities",
        True,
        [],
    )


def test_a_known_vulnerability_is_found_also_when_others_were_not_looked_up() -> None:
    sentence, complete, found = judge(report(FINE, SKIPPED, BAD), "")
    assert found == ["idna 3.4: CVE-1, fixed in 3.7"]
    assert not complete
    assert "2 of 3" in sentence


@pytest.mark.parametrize("packages", [(SKIPPED,), (SKIPPED, SKIPPED), ()])
def test_an_audit_that_looked_nothing_up_is_not_complete(packages: tuple[Any, ...]) -> None:
    _, complete, found = judge(report(*packages), "")
    assert not complete
    assert not found


def test_an_audit_without_a_connection_is_not_complete() -> None:
    sentence, complete, _ = judge("", "requests.exceptions.ConnectionError: no route")
    assert not complete
    assert "cannot be reached" in sentence


def test_any_other_failure_of_the_auditor_is_an_error() -> None:
    with pytest.raises(ValueError, match="invalid requirements"):
        judge("", "ERROR: invalid requirements input")


LOCKS = sorted((Path(__file__).parent.parent / "requirements").glob("*.lock"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_everything_is_locked_to_a_version_and_hashes_and_comes_from_no_named_place(
    lock: Path,
) -> None:
    text = lock.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.match(r"[a-z0-9._-]+(\[[a-z,]+\])?==\S+ ", line), line
        assert re.findall(r"--hash=sha256:[0-9a-f]{64}\b", line), line
        assert "://" not in line


def test_what_is_installed_must_have_its_hash() -> None:
    makefile = (LOCKS[0].parent.parent / "Makefile").read_text()
    installs = re.findall(r"pip install .*", makefile)
    assert len(installs) == 2
    assert all("--require-hashes" in line or "--no-deps" in line for line in installs)
