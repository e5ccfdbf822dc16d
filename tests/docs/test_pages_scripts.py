"""Scripts for pages: what the documentation shows of them is understood by a compiler that knows
the types of the client. `tests/web/test_scripts_docs.py` opens the first example in a browser."""

import re
from pathlib import Path

from tests.docs.book import Block, blocks, paths
from tests.docs.parts import PARTS, find, quoted
from tests.typescript import JAVASCRIPT, SCRIPTS, compiled

# What pages have, and the examples take from the text around them, without all that a browser has.
PAGE = """\
interface AbortSignal { readonly aborted: boolean }
declare class URL { constructor(url: string) }
declare const document: any, window: any, location: any, fetch: any;
declare const console: { log(...words: any[]): void };
declare const key: string;
declare namespace JSX { interface IntrinsicElements { [name: string]: any } }
declare module "react/jsx-runtime" { export const jsx: any, jsxs: any, Fragment: any; }
"""


def scripts() -> dict[str, str]:
    """All scripts by where they stand, but for those that are run elsewhere."""
    found: dict[str, str] = {}
    for page, path in paths().items():
        for block in blocks(page, path.read_text()):
            is_script = block.language in ("js", "jsx", "html") and not quoted(path)
            if is_script and find(PARTS, page, block.text) is None:
                found[re.sub(r"\W", "_", str(block))] = script_of(block)
    return found


def script_of(block: Block) -> str:
    """The script of a block: all of it, or what its page has in it."""
    text = block.text
    if block.language == "html":
        text = "".join(re.findall(r'<script type="module">\n(.*?)</script>', text, re.DOTALL))
        assert text, f"{block} has no script"
    for name, file in SCRIPTS.items():
        text = text.replace(f'"/{file}.js"', f'"{name}"')
    return f"{text.replace('…', '')}\nexport {{}};\n"


def test_every_script_is_right_by_the_types_of_the_client(tmp_path: Path) -> None:
    found = scripts()
    assert len(found) >= 5
    for name, text in found.items():
        (tmp_path / f"{name}.jsx").write_text(text)
    (tmp_path / "page.d.ts").write_text(PAGE)
    files = ["page.d.ts", *[f"{name}.jsx" for name in found]]
    done = compiled(tmp_path, files, jsx="react-jsx", **JAVASCRIPT)
    assert (done.stdout, done.returncode) == ("", 0)
