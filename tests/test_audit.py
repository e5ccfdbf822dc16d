import json
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
