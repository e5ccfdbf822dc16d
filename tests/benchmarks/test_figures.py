import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.figures import (
    FORMAT,
    Case,
    Machine,
    Report,
    Run,
    Side,
    load,
    run_of,
    save,
    spread,
)
from onceward.errors import BadInput

RATES = st.floats(0.001, 1e9)


def side(name: str, *rates: float, failed: str = "", ahead: str = "") -> Side:
    runs = [Run(per_second=rate, p99_ms=1000 / rate) for rate in rates]
    return Side(name, "synced", ahead, [*runs, *([Run(failed=failed)] if failed else [])])


def report(*cases: Case) -> Report:
    return Report(FORMAT, Machine(cores=2), list(cases))


def test_a_median_is_of_the_runs_that_went_well() -> None:
    assert side("a", 1, 9, 5, failed="cut off").median("per_second") == 5
    assert side("a", failed="cut off").median("per_second") is None
    assert side("a", 1).median("mib") is None


def test_a_side_says_why_it_never_ran() -> None:
    assert side("a", failed="not installed").why_not() == "not installed"
    assert side("a", 1, failed="once").why_not() == ""
    assert side("a").why_not() == "it was not tried"


def test_a_ratio_compares_rounds_next_to_each_other_in_time() -> None:
    # The machine became ten times slower for both, which medians of each would not show.
    case = Case("c", "c", sides=[side("onceward", 100, 10, 10), side("other", 50, 5, 20)])
    assert case.ratio(case.sides[1]) == 2


def test_a_ratio_leaves_out_rounds_in_which_one_failed() -> None:
    other = Side("other", runs=[Run(failed="no"), Run(per_second=5)])
    case = Case("c", "c", sides=[side("onceward", 100, 10), other])
    assert case.ratio(other) == 2
    assert case.ratio(case.sides[0]) is None
    assert case.ratio(side("absent", failed="no")) is None


def test_of_times_less_is_better() -> None:
    ours, other = Side("onceward", runs=[Run(p99_ms=2)]), Side("other", runs=[Run(p99_ms=8)])
    case = Case("c", "c", measure="p99_ms", sides=[ours, other])
    assert case.ratio(other) == 4


@settings(max_examples=40)
@given(st.lists(st.tuples(RATES, RATES), min_size=1, max_size=9))
def test_a_ratio_the_other_way_round_is_its_inverse(rounds: list[tuple[float, float]]) -> None:
    ours, other = (side("x", *rates) for rates in zip(*rounds, strict=True))
    case = Case("c", "c", sides=[ours, other])
    there, back = case.ratio(other), case.ratio(ours, ours=other)
    assert there is not None
    assert back is not None
    if len(rounds) % 2:
        assert there * back == pytest.approx(1)
    assert there > 0


def test_those_who_are_ahead_are_named_the_furthest_first() -> None:
    ours = side("onceward", 10)
    a = Case("a", "a", sides=[ours, side("near", 11), side("far", 30), side("behind", 9)])
    b = Case("b", "b", sides=[ours, side("onceward, said", 99), side("most", 40)])
    limits = Case("limits", "limits", family="limits", sides=[ours, side("fdatasync", 1e6)])
    found = [(case.id, side.name) for case, side, _ in report(limits, a, b).behind()]
    assert found == [("b", "most"), ("a", "far"), ("a", "near")]


def test_a_limit_is_shared_among_the_calls_that_it_takes() -> None:
    limits = Case("limits", "limits", family="limits", sides=[side("fdatasync", 1000)])
    case = Case("c", "c", limit="fdatasync", limit_calls=2, sides=[side("onceward", 100)])
    assert report(limits, case).share_of_limit(case) == pytest.approx(0.2)
    assert report(case).share_of_limit(case) is None
    late = msgspec.structs.replace(case, measure="p99_ms")
    assert report(limits, late).share_of_limit(late) is None


def test_a_newer_report_replaces_its_cases_and_keeps_the_others_in_place() -> None:
    def case(id_: str, rate: float) -> Case:
        return Case(id_, id_, sides=[side("onceward", rate)])

    merged = report(case("a", 1), case("b", 2)).merged(report(case("c", 3), case("a", 4)))
    found = [(case.id, case.sides[0].runs[0].per_second) for case in merged.cases]
    assert found == [("a", 4), ("b", 2), ("c", 3)]


@settings(max_examples=40)
@given(
    st.lists(
        st.builds(
            Run,
            per_second=RATES,
            p50_ms=RATES,
            cpu_us=st.none() | RATES,
            mib=st.none() | RATES,
            failed=st.text(),
        ),
        max_size=4,
    ),
    st.text(),
)
def test_what_is_saved_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, runs: list[Run], name: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "report.json"
    saved = report(Case("c", "c", sides=[Side(name, "synced", "why", runs)]))
    save(saved, path)
    assert load(path) == saved


def test_a_report_is_plain_json(tmp_path: Path) -> None:
    save(report(Case("c", "c", sides=[side("onceward", 2)])), tmp_path / "r.json")
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["cases"][0]["sides"][0]["runs"] == [{"per_second": 2.0, "p99_ms": 500.0}]
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "machine": {}, "cases": [{}]}', "\xff"]
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadInput, match=r"r\.json"):
        load(path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{"format": 7, "machine": {}, "cases": []}')
    with pytest.raises(BadInput, match="format 7"):
        load(path)


def test_what_cannot_be_read_or_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        load(tmp_path / "none.json")
    with pytest.raises(BadInput, match="No such file"):
        save(report(), tmp_path / "no" / "folder.json")


def test_a_run_takes_what_it_knows_of_what_a_program_prints() -> None:
    assert run_of({"per_second": 3, "conflicts": 7}) == Run(per_second=3)
    with pytest.raises(BadInput, match="per_second"):
        run_of({"per_second": "many"})
    with pytest.raises(BadInput):
        run_of([1])


def test_a_spread_is_the_least_and_the_most() -> None:
    assert spread(side("a", 3, 1, 2).runs, "per_second") == (1, 3)
    assert spread([], "per_second") is None
