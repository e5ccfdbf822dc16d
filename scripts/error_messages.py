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
from functools import cache
from pathlib import Path

from onceward import errors

ROOT = Path(__file__).parents[1]
CLASSES = {
    name
    for name, one in vars(errors).items()
    if inspect.isclass(one) and issubclass(one, errors.OncewardError)
}
# Errors without a wrong value: they are about the state of a node, a connection or a game, or the
# value is a secret.
STATES = (
    *("node_stopped", "room_moved", "engine_closed", "engine_unreachable", "overloaded"),
    *("too_many_connections", "slow_reader", "internal", "unreachable", "no_credentials"),
    *("no_server_key", "token_expired", "bad_secret", "match_over", "match_on", "out_of_time"),
    *("not_your_turn", "upgrade_required", "origin_refused"),
)
_VERBS = (
    "acquire|add|ask|begin|call|cancel|change|check|choose|claim|commit|configure|confirm|connect|copy|"
    "correct|create|declare|define|do not|encode|end|free|generate|get|give|grant|import|join|keep|"
    "leave|list|make|move|name|omit|open|pass|percent-encode|publish|put|raise|read|reload|remove|rename|"
    "repeat|resend|restart|restore|resume|retry|return|run|see|send|serialize|set|settle|shorten|"
    "sign|simplify|split|start|stop|take|try|upgrade|use|wait|wrap|write"
)
_REMEDY = re.compile(
    rf"(?:^|[;:.,}}] |\bor |\band |\bfirst, )(?:then |instead )?(?:{_VERBS})\b"
    r"|\b(?:must|may only|needs|takes)\b|; (?:all|the|its|these|only|supported|in)\b",
    re.IGNORECASE,
)
# Ends with the text of another error or a hint, which has the remedy.
_PASSED = re.compile(
    r"\{[^{}]*(?:\bmessage|\bhint|advice|_advice\(.*|needed|what|told|reason.*|self\._down|\bwhy|"
    r"_why\(.*|missing\(.*|_reason\(.*|\bdetail)[^{}]*\}"
)
# A limit is not the value that was wrong.
_LIMIT = re.compile(r"limits\.\w+$|_?[A-Z][A-Z_]*$|PREFIX$")


@dataclass(frozen=True)
class Site:
    """A place in the code that makes an error."""

    place: str
    code: str
    message: str
    """With values in braces."""

    @property
    def names_value(self) -> bool:
        found = re.findall(r"\{([^{}]+)\}", self.message)
        return any(not _LIMIT.match(one) for one in found)

    @property
    def names_remedy(self) -> bool:
        return bool(_REMEDY.search(self.message) or _PASSED.search(self.message))


@cache
def sites() -> tuple[Site, ...]:
    """All places in the package that make an error with a message."""
    return tuple(_sites())


def _sites() -> Iterator[Site]:
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
