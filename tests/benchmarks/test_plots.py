from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.figures import Case, Run, Side
from benchmarks.plots import WIDTH, bars, lines

SVG = "{http://www.w3.org/2000/svg}"
# What XML can hold at all.
NAMES = st.text(st.characters(min_codepoint=32, exclude_categories=("Cs", "Cn")), max_size=20)
RATES = st.floats(1e-3, 1e9)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_bars_show_each_side_that_ran_in_proportion() -> None:
    sides = [
        Side("onceward", runs=[Run(per_second=rate) for rate in (90, 100, 110)]),
        Side("<other & co>", runs=[Run(per_second=50)] * 3),
        Side("far behind", runs=[Run(per_second=0.8)] * 3),
        Side("absent", runs=[Run(failed="not installed")]),
    ]
    svg = bars(Case("c", "jobs", unit="jobs per second", sides=sides))
    shown = texts(svg)
    assert "onceward" in shown
    assert "<other & co>" in shown
    assert "absent" not in shown
    assert {"50  (2 ×)", "0.8  (125 ×)"} <= set(shown)
    tree = ElementTree.fromstring(svg)
    ours, other, _ = [float(bar.get("width", "")) for bar in tree.iter(f"{SVG}rect")]
    assert ours == pytest.approx(2 * other, rel=0.01)
    css = [bar.get("class") for bar in tree.iter(f"{SVG}rect")]
    assert css == ["ours", "other", "other"]


@settings(max_examples=40)
@given(st.lists(st.tuples(NAMES, st.lists(RATES, max_size=3)), max_size=5), NAMES)
def test_bars_of_anything_are_a_picture(sides: list[tuple[str, list[float]]], title: str) -> None:
    made = [Side(name, runs=[Run(per_second=rate) for rate in rates]) for name, rates in sides]
    tree = ElementTree.fromstring(bars(Case("c", title, sides=made)))
    assert tree.tag == f"{SVG}svg"
    for bar in tree.iter(f"{SVG}rect"):
        assert 0 < float(bar.get("width", "")) <= WIDTH


def test_lines_go_by_powers_of_ten() -> None:
    svg = lines("Waiting", "per second", [("onceward", [(1_000, 50.0), (1_000_000, 5.0)])])
    tree = ElementTree.fromstring(svg)
    [line] = tree.iter(f"{SVG}polyline")
    (left, high), (right, low) = [
        tuple(map(float, point.split(","))) for point in (line.get("points") or "").split()
    ]
    assert left < right
    assert high < low
    assert {"1,000", "1,000,000", "10", "100"} <= set(texts(svg))


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(NAMES, st.lists(st.tuples(st.integers(0, 10**7), st.floats(0, 1e9)), max_size=4)),
        max_size=9,
    )
)
def test_lines_of_anything_are_a_picture(series: list[tuple[str, list[tuple[int, float]]]]) -> None:
    assert ElementTree.fromstring(lines("t", "u", series)).tag == f"{SVG}svg"
