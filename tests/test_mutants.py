"""Mutants are made, tried and told of as the table of them says."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.mutants import modules as mutated
from scripts.mutants import results
from scripts.mutants.operators import find
from scripts.mutants.results import Result

ROOT = Path(__file__).parent.parent

MADE = {
    "return a < b": {"a < b → a <= b"},
    "return a <= b < c": {"a <= b < c → a < b < c", "a <= b < c → a <= b <= c"},
    "return a is not b": {"a is not b → a is b"},
    "return a and b": {"a and b → a or b"},
    "return not a": {"not a → a"},
    "return a + 1": {"a + 1 → a - 1", "a + 1 → a + 2", "return a + 1 → return None"},
    "a += b": {"a += b → a -= b", "without a += b"},
    "a.b = c": {"without a.b = c"},
    "a = True": {"a = True → a = False"},
    "a = 'b'": {"a = 'b' → a = 'bx'"},
    "a = b'c'": {"a = b'c' → a = b'cx'"},
    "f(a)": {"without f(a)"},
    "await f(a)": {"without await f(a)"},
    "del a[b]": {"without del a[b]"},
    "if a: b = c": {"a → not a"},
    "while a: break": {"a → not a", "break → continue"},
    "raise E('told') from None": {"without raise E('told') from None", "E('told') → E('toldx')"},
    "raise BadInput('not told', code='c')": {
        "without raise BadInput('not told', code='c')",
        "code='c' → code='cx'",
    },
    "a = [b for b in c if d]": {"for b in c if d → for b in c if not d"},
    "a = f'{b - c} of d'": {"b - c → b + c"},
}
LEFT_ALONE = """
import logging
from typing import TypeVar

log = logging.getLogger("name")
T = TypeVar("T")

class A:
    '''A docstring.'''
    __slots__ = ("a",)

@decorated(5)
def f(a: "Literal[3]") -> "Literal[4]":
    assert a == 1, "never"
    log.warning("a is %s", 7)
    b = "a sentence for people"
"""


@pytest.mark.parametrize("statement", MADE)
def test_a_mistake_is_made_where_one_can_be_made(statement: str) -> None:
    source = f"from onceward.errors import BadInput\nasync def f():\n {statement}"
    assert {mutant.text for mutant in find(ast.parse(source))} == MADE[statement]


def test_what_no_program_reads_is_left_alone() -> None:
    assert find(ast.parse(LEFT_ALONE)) == []


def test_a_mutant_is_known_by_its_place_and_text_wherever_its_lines_are() -> None:
    source = "class A:\n def f(self, a=1):\n  return [a + 1, a + 1]\nB = 2\n"
    mutants = find(ast.parse(source))
    names = [mutant.name for mutant in mutants]
    assert len({*names}) == len(names)
    assert "A.f | a + 1 → a - 1" in names
    assert "A.f | a + 1 → a - 1 (2)" in names
    assert "module | B = 2 → B = 3" in names
    assert names == [mutant.name for mutant in find(ast.parse("import os\n\n" + source))]


def test_what_runs_at_the_import_is_told_from_what_runs_in_functions() -> None:
    source = "A = 1\n@c\ndef f(a=2):\n return a + 3\nb = lambda: 4\n"
    places = {mutant.text: mutant.function for mutant in find(ast.parse(source))}
    assert places["A = 1 → A = 2"] is None
    assert places["2 → 3"] is None
    assert places["a + 3 → a + 4"] == ("f", 2)
    assert places["lambda: 4 → lambda: 5"] == ("<lambda>", 5)


def test_of_a_large_table_every_fifth_entry_is_tried() -> None:
    def count(entries: int) -> int:
        return len(find(ast.parse(f"A = {[*range(entries)]}\n")))

    assert (count(49), count(50), count(100)) == (49, 10, 20)


def test_every_mutant_of_a_real_module_is_a_program() -> None:
    source = (ROOT / "onceward/recurrence.py").read_text()
    before = ast.dump(ast.parse(source))
    for number in range(0, len(find(ast.parse(source))), 40):
        mutant = find(tree := ast.parse(source))[number]
        mutant.apply()
        compile(tree, mutant.name, "exec")
        assert ast.dump(tree) != before, mutant.name


TOY = """
LIMIT = 3

def fits(n):
    return n < LIMIT

def unused(n):
    return -n

def down(n):
    while n != 0:
        n -= 1
    return n
"""
TOY_TESTS = """
from toy import down, fits

def test_what_is_below_the_limit_fits():
    assert fits(2) and not fits(3)

def test_it_goes_down_to_nothing():
    assert down(2) == 0
"""
TRY = """
import ast, json
from pathlib import Path
from scripts.mutants import trial
from scripts.mutants.operators import find

trial.CPU_S = 1
tree = ast.parse(Path("toy.py").read_text())
toy = trial.Trial(Path.cwd(), "toy.py", ["test_toy.py"])
failing = toy.prepare()
chosen = [] if failing else [mutant for mutant in find(tree) if "without" not in mutant.text]
verdicts = [(mutant.name, verdict) for mutant, verdict in toy.run(tree, chosen)]
toy.close()
print(json.dumps([failing, dict(verdicts)]))
"""


def tried(folder: Path, toy: str) -> tuple[list[str], dict[str, str]]:
    """Which tests of a small module fail, and what became of its mutants."""
    (folder / "toy.py").write_text(toy)
    (folder / "test_toy.py").write_text(TOY_TESTS)
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{folder}"}
    printed = subprocess.run(
        [sys.executable, "-c", TRY],
        cwd=folder, env=environment, capture_output=True, check=True, timeout=100,
    )  # fmt: skip
    failing, verdicts = json.loads(printed.stdout)
    return failing, verdicts


@pytest.mark.timeout(120)
def test_a_mutant_is_killed_by_a_test_hangs_or_survives(tmp_path: Path) -> None:
    failing, verdicts = tried(tmp_path, TOY)
    assert failing == []
    assert verdicts == {
        "module | LIMIT = 3 → LIMIT = 4": "killed",
        "fits | n < LIMIT → n <= LIMIT": "killed",
        "unused | return -n → return None": "survived",
        "unused | -n → n": "survived",
        "down | n != 0 → n == 0": "killed",
        "down | n != 0 → n != 1": "killed",
        "down | n -= 1 → n += 1": "hung",
        "down | n -= 1 → n -= 2": "survived",
        "down | return n → return None": "killed",
    }


@pytest.mark.timeout(120)
def test_tests_that_fail_without_a_change_are_told(tmp_path: Path) -> None:
    failing, _ = tried(tmp_path, TOY.replace("LIMIT = 3", "LIMIT = 4"))
    [reason] = failing
    assert reason.startswith("test_toy.py::test_what_is_below_the_limit_fits: ")


def test_every_module_that_is_tried_is_there_and_has_tests_of_its_own() -> None:
    for module in mutated.modules():
        assert (ROOT / module).exists()
        assert mutated.tests_of(ROOT, module), module
    assert mutated.tests_of(ROOT, "onceward/keys.py") == ["tests/test_keys.py"]
    assert mutated.dotted("onceward/locks/__init__.py") == "onceward.locks"


def result(module: str, **verdicts: str) -> Result:
    return Result(module, verdicts=verdicts)


def test_a_table_counts_what_was_killed_explained_and_survived() -> None:
    known = {
        "a.py": result("a.py", one="killed", two="hung", three="survived", four="survived"),
        "b.py": result("b.py", one="killed"),
    }
    told = results.rows({"a.py": {"three": "it is the same"}}, known)
    assert [tuple(row.values()) for row in told] == [
        ("a.py", 4, 2, 1, 1, 0.5),
        ("b.py", 1, 1, 0, 0, 1.0),
        ("all", 5, 3, 1, 1, 0.6),
    ]
    assert "| `a.py` | 4 | 2 | 1 | 1 | 50.0% |" in results.table(told)
    assert results.shortcomings(told) == [
        "a.py: 1 survive, and are not explained",
        "only 60.0% are killed",
    ]


def test_nine_of_ten_must_be_killed_and_the_others_explained() -> None:
    known = {"a.py": result("a.py", **dict.fromkeys("abcdefghi", "killed"), j="survived")}
    assert results.shortcomings(results.rows({"a.py": {"j": "it is the same"}}, known)) == []
    assert results.shortcomings(results.rows({}, known)) != []
    known["a.py"].verdicts["k"] = "survived"
    explained = {"a.py": {"j": "it is the same", "k": "it is the same"}}
    assert results.shortcomings(results.rows(explained, known)) == ["only 81.8% are killed"]


def test_an_explanation_of_what_is_not_there_or_does_not_survive_is_stale() -> None:
    known = {"a.py": result("a.py", one="killed", two="survived")}
    explained = {"a.py": {"one": "", "two": "", "three": ""}, "b.py": {"one": ""}}
    stale = results.stale(explained, known)
    assert len(stale) == 3
    assert "a.py: one is explained, and killed" in stale
    assert "a.py: three is explained, and not there" in stale
    assert stale[-1].startswith("b.py is not tried")


def test_every_explanation_says_why() -> None:
    for module, names in results.explanations(ROOT / "scripts/mutants/explained.toml").items():
        assert (ROOT / module).exists()
        assert all(len(why) > 10 for why in names.values()), module


def test_a_table_is_written_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- mutants -->\nold\n<!-- /mutants -->\nbehind\n")
    results.write_between(page, "new\n")
    results.write_between(page, "newer\n")
    expected = "before\n<!-- mutants -->\n\nnewer\n\n<!-- /mutants -->\nbehind\n"
    assert page.read_text() == expected
    page.write_text("no marks\n")
    with pytest.raises(SystemExit, match="no <!-- mutants -->"):
        results.write_between(page, "new\n")
