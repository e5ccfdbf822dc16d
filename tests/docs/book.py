"""All pages that show code: the documentation, the README, and those of the applications."""

import re
from dataclasses import dataclass
from itertools import count
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Made by `make docs` from the code, which is tested.
MADE = "reference"
_FENCE = re.compile(r"^( *)```(.*)$")
_SAVED = re.compile(r"ave this as\s+`([\w./-]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: str
    line: int
    language: str
    text: str
    before: str
    """The paragraph that leads to it, if no other block stands between them."""
    follows: bool
    """Whether it stands right behind another block."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The name under which the reader is told to save it."""
        found = _SAVED.findall(self.before)
        return found[-1] if found else None


def paths() -> dict[str, Path]:
    """The pages by their names: those in docs/ by what they are called there."""
    folder = ROOT / "docs"
    found = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*.md"))
        if path.relative_to(folder).parts[0] != MADE
    }
    others = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("clients/*/*.md"))]
    others += sorted(ROOT.glob("apps/*/README.md"))
    return {**{str(path.relative_to(ROOT)): path for path in others}, **found}


def anchors(text: str) -> set[str]:
    """The anchors of a page: ids, and those of headings as mkdocs makes them, with a number if
    they are repeated."""
    found = set(re.findall(r' id="([^"]+)"', text))
    for title in re.findall(r"^#+ (.*)", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", words).strip())
        number = next(n for n in count() if (f"{slug}_{n}" if n else slug) not in found)
        found.add(f"{slug}_{number}" if number else slug)
    return found


def blocks(page: str, text: str) -> list[Block]:
    """The blocks of a page, in order."""
    found: list[Block] = []
    paragraph: list[str] = []
    inside: list[str] | None = None
    indent, language, start, last_end = "", "", 0, -2
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if inside is None and fence:
            indent, language, start = fence[1], fence[2].split(" ")[0], number
            inside = []
        elif inside is not None and fence and not fence[2]:
            body = "".join(f"{one.removeprefix(indent)}\n" for one in inside)
            follows = not "".join(paragraph).strip() and bool(found)
            found.append(Block(page, start, language, body, " ".join(paragraph), follows))
            inside, paragraph, last_end = None, [], number
        elif inside is not None:
            inside.append(line)
        elif line.strip():
            paragraph.append(line)
        elif paragraph and number > last_end + 1:
            paragraph = paragraph if _next_is_fence(text, number) else []
    assert inside is None, f"{page}:{start}: the block does not end"
    return found


def _next_is_fence(text: str, number: int) -> bool:
    """Whether a block begins right behind the empty line of this number."""
    rest = text.splitlines()[number : number + 1]
    return bool(rest) and bool(_FENCE.match(rest[0]))
