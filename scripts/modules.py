"""Writes docs/modules.md: a map of all modules, from the first lines of their docstrings.

python -m scripts.modules
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.tidy import LAYERS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "modules.md"
HEAD = """\
# Module map

All modules of the package, with the first line of each docstring. Folders are in the order of the
[layers](internals.md#layers), from the top down. `make modules` writes this page.
"""


def page(package: Path = ROOT / "onceward") -> str:
    """The text of the page."""
    order = [name for row in LAYERS for name in row.split() if "." not in name]

    def place(folder: Path) -> tuple[int, Path]:
        top = (folder.relative_to(package).parts or ("onceward",))[0]
        return order.index(top) if top in order else len(order), folder

    folders = {path.parent for path in package.rglob("*.py")}
    return HEAD + "".join(
        line for folder in sorted(folders, key=place) for line in _section(package, folder)
    )


def _section(package: Path, folder: Path) -> Iterator[str]:
    yield f"\n## {folder.relative_to(package.parent).as_posix()}\n"
    yield f"\n{summary(folder / '__init__.py')}\n"
    modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    if modules:
        yield "\n| module | contents |\n|---|---|\n"
    for path in modules:
        yield f"| `{path.name}` | {summary(path).replace('|', chr(92) + '|')} |\n"


def summary(path: Path) -> str:
    """The first line of the docstring of a module, or an empty text."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
