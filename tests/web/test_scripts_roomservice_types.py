"""The drop-in has the types of the package that it stands in for, and a page for the one is a page
for the other."""

import re
from pathlib import Path

from tests.server_process import ROOT
from tests.typescript import JAVASCRIPT, MODULES, TYPES, compiled

PROGRAMS = ROOT / "tests" / "js" / "types"
TODO = ROOT / "examples" / "todo" / "todo.js"
THEIRS, OURS = "@roomservice/browser", "onceward/roomservice"
PATHS = {
    THEIRS: MODULES / "@roomservice" / "browser" / "dist" / "index.d.ts",
    OURS: TYPES[OURS],
}


# What the example needs of a page, without all that a browser has.
PAGE = """\
declare const document: any;
declare class HTMLInputElement {
  value: string;
  addEventListener(event: string, hook: () => void): void;
}
declare function setInterval(hook: () => void, ms: number): number;
"""


def complaints(folder: Path, texts: dict[str, str]) -> dict[str, list[str]]:
    """What the compiler says about programs, by name."""
    for name, text in texts.items():
        (folder / name).write_text(text)
    done = compiled(folder, list(texts), PATHS, **JAVASCRIPT)
    found: dict[str, list[str]] = {}
    for name, said in re.findall(r"^(\S+?)(\(.*)", done.stdout, re.MULTILINE):
        found.setdefault(name, []).append(said)
    assert found or not done.returncode, done.stdout + done.stderr
    return found


def test_what_was_written_for_the_published_types_is_as_right_and_as_wrong_for_ours(
    tmp_path: Path,
) -> None:
    usage, both = ((PROGRAMS / name).read_text() for name in ("usage.ts", "both.ts"))
    page = TODO.read_text()
    (source,) = re.findall(r'^import .* from "(.*)";', page, re.MULTILINE)
    assert source == "/roomservice.js", "the example has another import, and that is all"
    wrong = f'import {{ RoomService }} from "{OURS}";\nnew RoomService({{ auth: 1 }});\n'
    found = complaints(
        tmp_path,
        {
            "page.d.ts": PAGE,
            "theirs.ts": usage,
            "ours.ts": usage.replace(THEIRS, OURS),
            "both.ts": both,
            "page-theirs.js": page.replace(source, THEIRS),
            "page-ours.js": page.replace(source, OURS),
            "wrong.ts": wrong,
            "wrong.js": page.replace(source, OURS).replace("todos.push(", "todos.append("),
        },
    )
    assert set(found) == {"wrong.ts", "wrong.js"}, found
    assert [len(said) for said in found.values()] == [1, 1]
