"""Each pack is the program that it was made of, as a compiler's parser sees both; and what is not
the same is found."""

import json
import subprocess
from pathlib import Path
from typing import Any

from onceward.web.packing import joined, pack, shrink
from onceward.web.scripts import NAMES, modules, outside_of, packed
from tests.needs import missing, need_program
from tests.web.test_scripts import PLAYED

ROOT = Path(__file__).parents[2]
COMPILER = ROOT / ".venv-npm" / "node_modules" / "typescript"

# What programs use here that is not their own.
GIVEN = 'import {b,c,f,g,x} from "far";'
# What a packer may get wrong: a program, and what it must not become.
WRONG = {
    "another variable": ("f((a, d) => a - d);", "f((a,d)=>d-a);"),
    "one that hides another": ("const top = 1; f((low) => low + top);", "let a=1;f(a=>a+a);"),
    "a global": ("const a = performance; f(a);", "let a=crypto;f(a);"),
    "a member": ("f(x.long);", "f(x.a);"),
    "a member in a pattern": ("const h = ({ long }) => long; f(h);", "let h=({a})=>a;f(h);"),
    "a member of an object": ("f({ long: 1 });", "f({a:1});"),
    "a text": ('f("a  b");', 'f("a b");'),
    "a template": ("f(`a  ${b}`);", "f(`a ${b}`);"),
    "a pattern": ("f(/a  b/);", "f(/a b/);"),
    "a sign": ("f(c - b);", "f(c+b);"),
    "two signs": ("f(c - -b);", "f(c- +b);"),
    "an optional member": ("f(c?.b);", "f(c.b);"),
    "a statement less": ("f(); g();", "f();"),
    "a private member": (
        "class A { #one = 1; #two = 2; get() { return this.#one; } } f(A);",
        "class A{#a=1;#b=2;get(){return this.#b}}f(A);",
    ),
    "two members by agreement": (
        "class A { _one = 1; _two = 2; } f(A);",
        "class A{a=1;a=2}f(A);",
    ),
    "a member by agreement like another": (
        "class A { _one = 1; b = 2; } f(A);",
        "class A{b=1;b=2}f(A);",
    ),
    "what is exported": ("const a = 1, d = 2; export { a };", "let d=1,a=2;export{a};"),
}
# What no pack can be of: the modules do not go together.
UNSOUND = {
    "declared twice": "const a = 1; const a = 2;",
    "what is nowhere": "f(nowhere);",
    "a member by agreement of someone else": "f(x._one);",
    "no program": "f(;",
    "a constant that is assigned to": "const a = 1; a = 2;",
}


def compared(folder: Path, cases: dict[str, list[str]]) -> Any:
    """What is wrong with each of some packs, by name: texts as they were joined and packed."""
    if not COMPILER.is_dir():
        missing("there is no TypeScript here: scripts/npm.sh installs it")
    file = folder / "cases.json"
    file.write_text(json.dumps(cases))
    done = subprocess.run(
        [need_program("node"), ROOT / "tests" / "js" / "packed.js", COMPILER, file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    return json.loads(done.stdout)


def test_each_script_is_the_program_of_its_modules(tmp_path: Path) -> None:
    cases = {
        name: [joined(modules(), name, outside_of(name)), packed(name).text.decode()]
        for name in NAMES
    }
    played = {**modules(), "all.js": PLAYED}
    cases["all.js"] = [joined(played, "all.js", {}), pack(played, "all.js", {})]
    assert len(cases) >= 5
    assert {name: said for name, said in compared(tmp_path, cases).items() if said} == {}


def test_what_is_another_program_is_found(tmp_path: Path) -> None:
    cases = {name: [GIVEN + before, GIVEN + after] for name, (before, after) in WRONG.items()}
    cases |= {name: [GIVEN + text, GIVEN + text] for name, text in UNSOUND.items()}
    right = {
        f"{name}, well packed": [GIVEN + before, shrink(GIVEN + before)]
        for name, (before, _) in WRONG.items()
    }
    found = compared(tmp_path, cases | right)
    assert [name for name in cases if not found[name]] == []
    assert {name: found[name] for name in right if found[name]} == {}
