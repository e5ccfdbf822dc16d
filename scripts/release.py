"""Checks that a tag can be released: python3 scripts/release.py v0.1.0a1.

Prints each problem on a line and ends with exit code 1. Needs only the standard library.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Markdown links and images, and attributes of HTML, to another place than a URL or a heading.
_RELATIVE = re.compile(r"""(?:\]\(|(?:src|srcset|href)=")(?!https?://|#|mailto:)([^)"]+)""")


def problems(tag: str, version: str, changelog: str, readme: str, project: str) -> Iterator[str]:
    """The problems of a release; the last three arguments are texts of files."""
    if tag != f"v{version}":
        yield f"the tag is {tag}, but onceward/__init__.py has the version {version}"
    section = re.search(rf"^## \[{re.escape(version)}\] - (\S+)", changelog, re.MULTILINE)
    if section is None:
        yield f"CHANGELOG.md has no section [{version}] with a date"
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", section[1]):
        yield f"the date of [{version}] in CHANGELOG.md is {section[1]!r}; write YYYY-MM-DD"
    if not tomllib.loads(project)["project"].get("urls"):
        yield "pyproject.toml has no [project.urls]"
    for target in _RELATIVE.findall(readme):
        yield f"README.md links to {target}, which PyPI cannot show; write the whole URL"


def main(tag: str) -> int:
    package = (ROOT / "onceward" / "__init__.py").read_text()
    version = re.search(r'^__version__ = "(.+)"', package, re.MULTILINE)
    assert version is not None
    texts = [(ROOT / name).read_text() for name in ("CHANGELOG.md", "README.md", "pyproject.toml")]
    found = list(problems(tag, version[1], *texts))
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
