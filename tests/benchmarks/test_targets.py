"""Verdicts on made-up figures, and that they name cases and sides that there are."""

import subprocess
import sys
from pathlib import Path

from benchmarks.figures import FORMAT, Case, Machine, Report, Run, Side
from benchmarks.machine import SYNCS
from benchmarks.targets import AHEAD_OF, CASES, EMBEDDED, verdicts

ROOT = Path(__file__).parent.parent.parent


def side(name: str, *rates: float) -> Side:
    return Side(name, runs=[Run(per_second=r) if r else Run(failed="no") for r in rates])


def told(*cases: Case) -> list[str]:
    return list(verdicts(Report(FORMAT, Machine(), list(cases))))


def case(id_: str, *sides: Side, limit: str = "") -> Case:
    return Case(id_, f"title of {id_}", limit=limit, sides=[side("onceward", 60, 60), *sides])


def limits(rate: float) -> Case:
    return Case("limits", "limits", family="limits", sides=[side(SYNCS, rate, rate)])


def test_the_best_embedded_peer_counts_in_whatever_form() -> None:
    threads, one = side("huey", 12, 12), side("huey, one thread", 15, 15)
    dbos, results = side("DBOS", 3, 3), side("huey, results", 6, 6)
    assert told(case("accept-100", threads, one, dbos)) == [
        "title of accept-100: 4.0 times the best durable embedded peer (3 wanted), "
        "huey, one thread: as wanted"
    ]
    assert told(case("work-100", side("huey", 24, 24), one, dbos, results)) == [
        "title of work-100: 2.5 times the best durable embedded peer (3 wanted), "
        "huey: NOT as wanted"
    ]


def test_what_is_not_embedded_or_not_judged_does_not_count() -> None:
    sides = [side("Restate", 600), side("huey", 20), side("huey, one thread", 9), side("DBOS", 1)]
    assert told(case("accept-100", *sides)) == [
        "title of accept-100: 3.0 times the best durable embedded peer (3 wanted), huey: as wanted"
    ]
    assert told(case("lock-100", side("huey", 20)), case("work-1", side("huey", 20))) == []


def test_peers_that_did_not_run_are_named_and_no_verdict_is_made_of_nothing() -> None:
    assert told(case("accept-100", side("huey", 20), side("DBOS", 0, 0))) == [
        "title of accept-100: 3.0 times the best durable embedded peer (3 wanted), "
        "huey (of all but huey, one thread; DBOS): as wanted"
    ]
    assert told(case("accept-100", side("huey", 0)), case("accept-1", limit=SYNCS)) == [
        "title of accept-100: no durable embedded peer to compare with (3 wanted): NOT judged",
        "title of accept-1: no fdatasync rate of the same run to compare with (70% wanted): "
        "NOT judged",
    ]


def test_one_caller_is_compared_with_the_syncs_of_the_same_run() -> None:
    for rate, share, judged in ((80, "75%", "as wanted"), (120, "50%", "NOT as wanted")):
        assert told(limits(rate), case("accept-1", limit=SYNCS)) == [
            f"title of accept-1: {share} of the fdatasync rate measured in the same run "
            f"(70% wanted): {judged}"
        ]


def test_on_postgresql_each_is_told_whether_we_are_ahead() -> None:
    sides = [side("procrastinate", 30), side("DBOS", 80), side("pgmq", 600)]
    assert told(case("work-postgres", *sides), case("accept-postgres", side("DBOS", 0))) == [
        "title of work-postgres: ahead of procrastinate: yes, 2.00 times",
        "title of work-postgres: ahead of DBOS: NO, 0.75 times",
        "title of accept-postgres: ahead of DBOS: NOT judged",
    ]


def test_all_that_is_judged_is_measured_by_the_program() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--list", "--only", "accept,work"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        check=True,
        timeout=50,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    sides = {line.partition(":")[0].partition(" / ")[2]: f"{line}," for line in listed}
    assert set(CASES) <= sides.keys()
    for id_, names in EMBEDDED.items():
        assert all(f" {name}," in sides[id_] for name in names)
    assert all(f" {name}," in sides["work-postgres"] for name in AHEAD_OF)
