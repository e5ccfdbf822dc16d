"""Lists error messages picked at random, for a check by a person: value and remedy.

python -m scripts.error_messages SEED [COUNT]
"""

import ast
import inspect
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onceward import errors

ROOT = Path(__file__).parents[1]
CLASSES = {
    name
    for name, one in vars(errors).items()
    if inspect.isclass(one) and issubclass(one, errors.OncewardError)
}
# The reason, not the caller, decides what to do: the caller retries, or an operator acts.
STATES = (
    *("node_stopped", "room_moved", "engine_closed", "engine_unreachable", "overloaded"),
    *("outcome_unknown", "storage_failed", "slow_reader", "lock_lost", "internal"),
    *("out_of_time", "unreachable", "in_doubt", "stale_token"),
)
_REMEDY = re.compile(
    r"[;:.] \S|, such as|, not |\b(?:use|give|send|at most|at least|must|needs?|only|either|1 to|"
    r"0 to|has no|not found|already|again|lacks|may not|cannot|belongs|expected|first|until)\b"
)


@dataclass(frozen=True)
class Site:
    """A place in the code that makes an error."""

    place: str
    code: str
    message: str
    """With values in braces."""

    @property
    def names_value(self) -> bool:
        return "{" in self.message

    @property
    def names_remedy(self) -> bool:
        return bool(_REMEDY.search(self.message))


def sites() -> Iterator[Site]:
    """All places in the package that make an error with a message."""
    for path in sorted((ROOT / "onceward").rglob("*.py")):
        if "testing" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                first = node.args[0]
                if node.func.id in CLASSES and isinstance(first, ast.Constant | ast.JoinedStr):
                    place = f"{path.relative_to(ROOT)}:{node.lineno}"
                    yield Site(place, _code(node, node.func.id), _message(first))


def _code(node: ast.Call, name: str) -> str:
    for keyword in node.keywords:
        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    found: str = getattr(errors, name).default_code
    return found


def _message(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(
        str(one.value) if isinstance(one, ast.Constant) else f"{{{ast.unparse(one.value)}}}"
        for one in node.values
        if isinstance(one, ast.Constant | ast.FormattedValue)
    )


def pick(seed: int, count: int = 20) -> list[Site]:
    """Messages by seed: codes of the table first, then a place of each."""
    by_code: dict[str, list[Site]] = {}
    for site in sites():
        by_code.setdefault(site.code, []).append(site)
    chance = random.Random(seed)
    codes = chance.sample(sorted(by_code), min(count, len(by_code)))
    return [chance.choice(by_code[code]) for code in codes]


def main() -> None:
    for site in pick(*map(int, sys.argv[1:])):
        marks = (
            f"{'value' if site.names_value else '-':6}{'remedy' if site.names_remedy else '-':7}"
        )
        print(f"{marks}{site.code:20}{site.place}\n    {site.message}")


if __name__ == "__main__":
    main()
