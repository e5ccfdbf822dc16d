"""Checks prose against docs/writing.md: phrases and lengths of sentences.

python -m scripts.prose [--summary] [PATH…]
"""

import argparse
import ast
import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "writing.md"
ALLOWED_PER_1000 = 1.0
_PYTHON = ("onceward", "apps", "examples", "scripts", "benchmarks")
_PAGES = ("onceward/web", "apps", "clients/js")
# The style guide quotes wrong phrases, and the module map repeats docstrings.
_LEFT_OUT = ("docs/writing.md", "docs/modules.md", "docs/reference/", "/node_modules/", "/dist/")
_GENERATED = re.compile(r"\b(?:Generated|Written) by scripts")


@dataclass(frozen=True)
class Text:
    """A text written for people."""

    path: Path
    line: int
    kind: str
    text: str


@dataclass(frozen=True)
class Hit:
    """A phrase to replace, or a sentence that is too long."""

    where: Text
    found: str
    advice: str


class Guide:
    """The phrases and limits of docs/writing.md."""

    def __init__(self, page: str) -> None:
        self.phrases = [
            (re.compile(pattern, re.IGNORECASE), advice)
            for pattern, advice in re.findall(r"^\| `(.+)` \| (.+?) \|$", page, re.MULTILINE)
        ]
        limits = dict(re.findall(r"^\| ([a-zC].+?) \| (\d+) \w+ \|$", page, re.MULTILINE))
        self.words_max = int(limits["sentence in docs, docstrings and errors"])
        self.first_words_max = int(limits["first sentence of a page or docstring"])
        self.help_chars_max = int(limits["CLI help of an option or command"])

    def hits(self, text: Text) -> Iterator[Hit]:
        for pattern, advice in self.phrases:
            for match in pattern.finditer(text.text):
                yield Hit(text, match[0], advice)
        if text.kind == "help" and len(text.text) > self.help_chars_max:
            yield Hit(text, f"{len(text.text)} characters", f"at most {self.help_chars_max}")
        if text.kind in ("docs", "docstring", "error"):
            for index, sentence in enumerate(sentences(text.text)):
                first = index == 0 and text.kind == "docstring"
                words = len(sentence.split())
                limit = self.first_words_max if first else self.words_max
                if words > limit:
                    yield Hit(text, f"{words} words: {sentence[:60]}…", f"at most {limit}")


def sentences(text: str) -> list[str]:
    return [one for one in re.split(r"(?<=[.!?;:])\s+(?=[A-Z`\"'(0-9])|\n\n", text) if one.strip()]


def texts(paths: list[Path]) -> Iterator[Text]:
    for path in paths:
        source = path.read_text(encoding="utf-8")
        if _GENERATED.search(source[:400]):
            continue
        if path.suffix == ".md":
            yield from _markdown(path, source)
        elif path.suffix == ".py":
            yield from _python(path, source)
        elif path.suffix == ".html":
            yield from _html(path, source)
        elif path.suffix in (".js", ".ts"):
            yield from _script(path, source)


def default_paths() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    found += sorted((ROOT / "docs").rglob("*.md"))
    for folder in _PYTHON:
        found += sorted((ROOT / folder).rglob("*.py"))
    for folder in _PAGES:
        for suffix in ("*.html", "*.js", "*.ts", "*.md"):
            found += sorted((ROOT / folder).rglob(suffix))
    names = {path: f"/{path.relative_to(ROOT).as_posix()}" for path in found}
    return [path for path, name in names.items() if not any(out in name for out in _LEFT_OUT)]


# Markdown: paragraphs, list items and table cells, without code.


def _markdown(path: Path, source: str) -> Iterator[Text]:
    block: list[str] = []
    begun = 0
    fenced = False
    for number, line in enumerate([*source.splitlines(), ""], 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            line = ""
        elif fenced:
            continue
        starts = re.match(r"\s*(?:[-*+] |\d+\. |\||#|>|!!!)", line)
        if (not line.strip() or starts) and block:
            yield from _paragraph(path, begun, block)
            block = []
        if line.strip():
            begun = begun if block else number
            block.append(line.strip())


def _paragraph(path: Path, line: int, block: list[str]) -> Iterator[Text]:
    text = " ".join(block)
    if text.startswith("|"):
        for cell in text.strip("|").split("|"):
            if re.search(r"[a-z]", cell):
                yield Text(path, line, "cell", _prose(cell))
    else:
        yield Text(path, line, "docs", _prose(re.sub(r"^(?:[-*+>#]+|\d+\.)\s*", "", text)))


def _prose(text: str) -> str:
    """Text without code, quotations and addresses."""
    text = re.sub(r"``.+?``|`[^`]*`", "`x`", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\"[^\"]{1,200}\"|“[^”]*”", '"x"', text)
    return re.sub(r"https?://\S+|<[^>]+>|\*\*", "", text).strip()


# Python: docstrings, comments, help of commands, errors and log lines.

_CALLS = {"help": "help", "description": "docs", "epilog": "docs"}
_LOGS = ("debug", "info", "warning", "error", "exception", "critical")


def _python(path: Path, source: str) -> Iterator[Text]:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _docstring(path, node)
            case ast.Raise(exc=ast.Call(args=[first, *_])):
                yield from _literal(path, first, "error")
            case ast.Call(func=func, args=args, keywords=keywords):
                for keyword in keywords:
                    if keyword.arg in _CALLS:
                        yield from _literal(path, keyword.value, _CALLS[keyword.arg])
                name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
                if name in _LOGS or name in ("print", "complain"):
                    for argument in args[:1]:
                        yield from _literal(path, argument, "log")
    yield from _comments(path, source)
    yield from _field_docs(path, tree)


_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
# Code in docstrings.
_CODE = re.compile(r" {4}|python -m|async |import |@")


def _docstring(path: Path, node: _Documented) -> Iterator[Text]:
    text = ast.get_docstring(node)
    if text:
        kept = [part for part in re.split(r"\n\n|\n(?=- )", text) if not _CODE.match(part)]
        joined = "\n\n".join(" ".join(part.split()) for part in kept)
        yield Text(path, node.body[0].lineno, "docstring", _prose(joined))


def _field_docs(path: Path, tree: ast.Module) -> Iterator[Text]:
    for node in ast.walk(tree):
        body = node.body if isinstance(node, ast.Module | ast.ClassDef) else []
        for before, after in itertools.pairwise(body):
            match before, after:
                case (
                    ast.AnnAssign() | ast.Assign(),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    yield Text(path, after.lineno, "docstring", _prose(" ".join(text.split())))


def _literal(path: Path, node: ast.expr, kind: str) -> Iterator[Text]:
    parts: list[str] = []
    for one in ast.walk(node):
        if isinstance(one, ast.JoinedStr):
            parts = [str(v.value) if isinstance(v, ast.Constant) else "x" for v in one.values]
            break
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            parts = [one.value]
            break
    text = " ".join("".join(parts).split())
    if " " in text:
        yield Text(path, node.lineno, kind, _prose(text))


def _comments(path: Path, source: str) -> Iterator[Text]:
    block: list[str] = []
    begun = 0
    for number, line in enumerate([*source.splitlines(), ""], 1):
        match = re.match(r"\s*# (?!type:|noqa|pragma|ruff|mypy)(.*)$", line) or re.search(
            r"\S  # (?!type:|noqa|pragma|ruff|mypy)(.*)$", line
        )
        if match and re.match(r"\s*#", line):
            begun = begun if block else number
            block.append(match[1])
            continue
        if block:
            yield Text(path, begun, "comment", _prose(" ".join(block)))
            block = []
        if match:
            yield Text(path, number, "comment", _prose(match[1]))


# Pages and scripts.


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, str]] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style", "code", "pre")
        for name, value in attrs:
            if name in ("title", "placeholder", "aria-label", "alt", "content") and value:
                self.found.append((self.getpos()[0], value))

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style", "code", "pre")

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.found.append((self.getpos()[0], data))


def _html(path: Path, source: str) -> Iterator[Text]:
    page = _Page()
    page.feed(source)
    for line, text in page.found:
        yield Text(path, line, "page", _prose(" ".join(text.split())))


def _script(path: Path, source: str) -> Iterator[Text]:
    for number, line in enumerate(source.splitlines(), 1):
        if len(line) > 400:
            return  # minified
        for text in re.findall(r"//\s(.*)$|/?\*\*?\s(.*?)(?:\*/)?$", line):
            if any(text):
                yield Text(path, number, "comment", _prose(" ".join(text).strip()))
        for quoted in re.findall(r"\"([^\"]* [^\"]*)\"|`([^`]* [^`]*)`", re.sub(r"//.*", "", line)):
            text = re.sub(r"\$\{[^}]*\}", "x", " ".join(quoted))
            if re.search(r"[a-z] [a-z]", text) and not re.search(r"[{};=<>]|=>", text):
                yield Text(path, number, "page", _prose(text.strip()))


def main() -> int:
    parser = argparse.ArgumentParser(description="Check texts against docs/writing.md.")
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders [all]")
    parser.add_argument("--summary", action="store_true", help="show counts only")
    arguments = parser.parse_args()
    guide = Guide(GUIDE.read_text(encoding="utf-8"))
    paths = default_paths()
    if arguments.paths:
        chosen = [path.resolve() for path in arguments.paths]
        paths = [path for path in paths if {path, *path.parents} & set(chosen)]
    words = 0
    hits: list[Hit] = []
    for text in texts(paths):
        words += len(text.text.split())
        hits += guide.hits(text)
    if arguments.summary:
        by_file = Counter(hit.where.path.relative_to(ROOT).as_posix() for hit in hits)
        for name, count in by_file.most_common(60):
            print(f"{count:6} {name}")
        for advice, count in Counter(hit.advice for hit in hits).most_common():
            print(f"{count:6} {advice}")
        for kind, count in Counter(hit.where.kind for hit in hits).most_common():
            print(f"{count:6} {kind}")
    else:
        for hit in hits:
            where = f"{hit.where.path.relative_to(ROOT).as_posix()}:{hit.where.line}"
            print(f"{where}: {hit.where.kind}: {hit.found!r}: {hit.advice}")
    per_1000 = 1000 * len(hits) / max(words, 1)
    print(f"{len(hits):,} hits in {words:,} words: {per_1000:.2f} per 1,000", file=sys.stderr)
    return int(per_1000 > ALLOWED_PER_1000)


if __name__ == "__main__":
    sys.exit(main())
