"""The timeline of a failing run, for people: at most a screen."""

import re
from collections.abc import Sequence
from typing import Final

LINES_MAX: Final = 20
_ID: Final = re.compile(r"\b0[0-9A-HJKMNP-TV-Z]{24,32}\b")
_FAULT: Final = re.compile(r"^FAULT (.*) #\d+$")
_NODE: Final = re.compile(r"^([a-h]\.\d+) (.*)$")


def timeline(events: Sequence[tuple[int, str]]) -> list[str]:
    """The events as lines, with short names of jobs. Repeats are counted, and the middle of a long
    timeline is left out."""
    names: dict[str, str] = {}

    def short(text: str) -> str:
        text = _ID.sub(lambda found: names.setdefault(found[0], f"job {len(names) + 1}"), text)
        if fault := _FAULT.match(text):
            what = fault[1]
            if node := _NODE.match(what):
                what = f"node {node[1]}: {node[2]}"
            return f"! {what}"
        return f"  {text}"

    lines: list[tuple[str, str, int]] = []
    for at_ns, event in events:
        text = short(event)
        if lines and lines[-1][1] == text:
            lines[-1] = lines[-1][0], text, lines[-1][2] + 1
        else:
            lines.append((f"{at_ns / 1e9:9.3f} s", text, 1))
    shown = [f"{at} {text}{f' (×{count})' if count > 1 else ''}" for at, text, count in lines]
    if len(shown) > LINES_MAX:
        half = LINES_MAX // 2
        gone = f"            … {len(shown) - 2 * half + 1} more events …"
        shown = [*shown[:half], gone, *shown[-half + 1 :]]
    return shown
