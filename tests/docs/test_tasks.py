"""The page of tasks lists the asyncio tasks of a node: those in the code, and those that run."""

import ast
import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import onceward
from tests.docs.book import ROOT

PAGE = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
NAME = re.compile(r"`(onceward-[a-z-]+)(?:-ID)?`")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| `onceward-")
]
LISTED = [name for row in ROWS for name in NAME.findall(row[0])]
ALWAYS = {
    name
    for line in PAGE.partition("## From start to stop")[2].partition("\n## ")[0].splitlines()
    if re.match(r"\| `onceward-[a-z]+` \| (all|SQLite) \|", line)
    for name in NAME.findall(line)
}
# Clients, commands and test tools run elsewhere.
ELSEWHERE = ("client", "cli", "sync", "testing")


def named_tasks(code: str) -> Iterator[str]:
    """The name of each task that code starts; empty if it has none."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if isinstance(node.func, ast.Name):
            called = node.func.id
        if called in ("create_task", "ensure_future"):
            names = [keyword.value for keyword in node.keywords if keyword.arg == "name"]
            yield _text(names[0]) if names else ""
        elif called == "Shared":
            yield from (_text(one) for one in node.args if _text(one).startswith("onceward-"))


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return _text(node.values[0]).rstrip("-")
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "given"  # by whoever calls it


def test_a_task_without_a_name_is_found() -> None:
    code = "create_task(a(), name='b'); loop.create_task(a()); create_task(a(), name=f'c-{d}')"
    assert list(named_tasks(code)) == ["b", "", "c"]


def test_every_task_in_the_code_has_a_name_and_a_row() -> None:
    package = ROOT / "onceward"
    found: dict[str, str] = {}
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).as_posix()
        if not place.startswith(ELSEWHERE):
            found |= dict.fromkeys(named_tasks(path.read_text(encoding="utf-8")), place)
    assert "" not in found, f"{found.get('')}: create_task without a name"
    assert set(found) - {"given"} == set(LISTED)
    assert len(set(LISTED)) == len(LISTED)


async def test_a_started_application_runs_the_tasks_of_the_page(tmp_path: Path) -> None:
    app = onceward.App(f"sqlite:///{tmp_path}/app.db", slots=2)

    @app.handler("q")
    async def handle(job: onceward.Job) -> None:
        pass

    async with app:
        for _ in range(10_000):  # turns of the event loop
            running = {task.get_name() for task in asyncio.all_tasks()}
            if running >= ALWAYS:
                break
            await asyncio.sleep(0)
        own = {name for name in running if name.startswith("onceward-")}
        assert ALWAYS <= own <= set(LISTED)
        [test] = asyncio.all_tasks() - {
            task for task in asyncio.all_tasks() if task.get_name().startswith("onceward-")
        }
        assert test is asyncio.current_task(), "no task is without a name"
    assert len(ALWAYS) > 10
