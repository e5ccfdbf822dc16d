"""Plots of cases as SVG: bars for the sides of a case, lines for a family over its sizes.

Plain SVG with its own style sheet, for light and dark pages, without web fonts.
"""

import math
from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape

from benchmarks.figures import OURS, Case, Side, spread

WIDTH = 760
_NAMES = 190
_VALUES = 160
_ROW = 28
_HEAD = 44
_STYLE = """<style>
text{font:13px system-ui,sans-serif;fill:#24292f}
.head{font-weight:600}.dim{fill:#6e7781;font-size:12px}
.ours{fill:#0969da}.other{fill:#8c959f}.range{stroke:#24292f;stroke-width:1.2}
.grid{stroke:#d0d7de;stroke-width:1}.line{fill:none;stroke-width:2}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.dim{fill:#9198a1}.ours{fill:#4493f8}
.other{fill:#6e7681}.range{stroke:#e6edf3}.grid{stroke:#30363d}}
</style>"""
# Smaller values count as zero.
_LEAST = 1e-6
_COLOURS = ("#0969da", "#bf8700", "#8250df", "#1a7f37", "#cf222e", "#6e7781", "#bc4c00")


def bars(case: Case) -> str:
    """The median of each side that ran, with the minimum and maximum of its runs."""
    what = case.measure
    rows = [side for side in case.sides if side.median(what) is not None]
    most = max((max(spread(side.good(), what) or (0.0, 0.0)) for side in rows), default=1.0)
    room = WIDTH - _NAMES - _VALUES
    parts = [_text(0, 18, case.title, "head"), _text(0, 36, _caption(case), "dim")]
    for index, side in enumerate(rows):
        top = _HEAD + index * _ROW
        value, (low, high) = side.median(what) or 0.0, spread(side.good(), what) or (0.0, 0.0)
        length = room * value / (most or 1.0)
        css = "ours" if side.name.startswith(OURS) else "other"
        parts.append(_text(_NAMES - 8, top + 18, side.name, anchor="end"))
        parts.append(
            f'<rect class="{css}" x="{_NAMES}" y="{top + 5}" width="{max(length, 1):.1f}" '
            f'height="{_ROW - 10}" rx="2"/>'
        )
        ends = [_NAMES + room * end / (most or 1.0) for end in (low, high)]
        middle = top + _ROW / 2
        parts.append(
            f'<line class="range" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{middle}" '
            f'y2="{middle}"/>'
        )
        parts.append(_text(max(_NAMES + length, ends[1]) + 8, top + 18, _value(case, side)))
    return _picture(_HEAD + len(rows) * _ROW + 8, parts, f"{case.title}: {_caption(case)}")


def lines(title: str, unit: str, series: Sequence[tuple[str, Sequence[tuple[int, float]]]]) -> str:
    """One line for each side: a figure over the amount of data, both logarithmic."""
    points = [point for _, line in series for point in line if min(point) > _LEAST]
    height, left, right, bottom = 320, 70, 170, 290
    parts = [_text(0, 18, title, "head"), _text(0, 36, unit, "dim")]
    if points:
        across = _Axis([size for size, _ in points], left, WIDTH - right)
        up = _Axis([value for _, value in points], bottom, 60)
        for power in across.powers():
            at = across.at(10.0**power)
            parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="60" y2="{bottom}"/>')
            parts.append(_text(at, bottom + 18, f"{10**power:,}", "dim", "middle"))
        for power in up.powers():
            at = up.at(10.0**power)
            parts.append(
                f'<line class="grid" x1="{left}" x2="{WIDTH - right}" y1="{at:.1f}" y2="{at:.1f}"/>'
            )
            parts.append(_text(left - 6, at + 4, f"{10.0**power:,.10g}", "dim", "end"))
        for index, (name, line) in enumerate(series):
            drawn = [
                (across.at(size), up.at(value)) for size, value in line if min(size, value) > 0
            ]
            if not drawn:
                continue
            colour = _COLOURS[index % len(_COLOURS)]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)
            parts.append(f'<polyline class="line" stroke="{colour}" points="{path}"/>')
            parts += [
                f'<circle fill="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in drawn
            ]
            label = 70 + index * 20
            parts.append(
                f'<rect fill="{colour}" x="{WIDTH - right + 14}" y="{label - 9}" width="10" '
                'height="10"/>'
            )
            parts.append(_text(WIDTH - right + 30, label, name))
    return _picture(height, parts, title)


class _Axis:
    """A logarithmic axis between two positions."""

    def __init__(self, values: Iterable[float], first: float, last: float) -> None:
        powers = [math.log10(value) for value in values]
        self._low, self._high = math.floor(min(powers) + 1e-9), math.ceil(max(powers) - 1e-9)
        if self._low == self._high:
            self._high += 1
        self._first, self._last = first, last

    def at(self, value: float) -> float:
        part = (math.log10(value) - self._low) / (self._high - self._low)
        return self._first + part * (self._last - self._first)

    def powers(self) -> range:
        return range(self._low, self._high + 1)


def _caption(case: Case) -> str:
    better = "more is better" if case.measure == "per_second" else "less is better"
    what = {"per_second": "", "p50_ms": "median, ", "p99_ms": "99th percentile, "}[case.measure]
    return f"{what}{case.unit}, {better}"


def _value(case: Case, side: Side) -> str:
    value = side.median(case.measure) or 0.0
    text = f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"
    ratio = case.ratio(side)
    if ratio is None or case.family == "limits":
        return text
    return f"{text}  ({ratio:.0f} ×)" if ratio >= 10 else f"{text}  ({ratio:.2g} ×)"


def _text(x: float, y: float, text: str, css: str = "", anchor: str = "start") -> str:
    named = f' class="{css}"' if css else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _picture(height: float, parts: Sequence[str], label: str) -> str:
    name = escape(label, {'"': "&quot;"})
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" role="img" aria-label="{name}">\n{_STYLE}\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
