"""What READMEs quote of the code, and where they lead."""

import ast
import re
from pathlib import Path


def statements(code: str) -> list[str]:
    """All of them, however deep, each as it is written in one way."""
    found = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.stmt)]
    return [ast.unparse(node) for node in found]


def links(page: Path) -> list[str]:
    """Where a page leads to, beside other hosts."""
    return re.findall(r"\]\((?!http)([^)]+)\)", page.read_text())
