"""Runs what guides show: blocks of commands, each with what it prints."""

import re
import subprocess
from pathlib import Path

PROMPT = "$ "
# Stands for anything, in what a command is said to print.
ANYTHING = "…"
_DONE = "-- done --"


def blocks(guide: Path, language: str) -> list[str]:
    """The blocks of a language in a guide."""
    return re.findall(rf"^```{language}\n(.*?)^```", guide.read_text(), re.DOTALL | re.MULTILINE)


def commands(block: str) -> list[tuple[str, list[str]]]:
    """The commands of a block, each with the lines that it is said to print."""
    found: list[tuple[str, list[str]]] = []
    goes_on = False
    for line in block.splitlines():
        if line.startswith(PROMPT):
            found.append((line.removeprefix(PROMPT), []))
        elif goes_on:
            found[-1] = (f"{found[-1][0]}\n{line}", [])
        elif found:  # before the first command there is nothing that was printed
            found[-1][1].append(line)
        goes_on = line.endswith("\\")
    return found


def printed(shown: list[str], said: list[str]) -> bool:
    """Whether lines were printed as they are said to be: in that order, maybe with others
    between them."""
    lines = iter(shown)
    for pattern in said:
        wanted = re.compile(".*".join(map(re.escape, _spaced(pattern).split(ANYTHING))))
        if not any(wanted.fullmatch(_spaced(line)) for line in lines):
            return False
    return True


def _spaced(line: str) -> str:
    """A line with one space for each gap: guides show columns as on a terminal, which this is
    not."""
    return " ".join(line.split())


class Console:
    """A shell, with its variables and jobs."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._shell = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=environment,
        )

    def run(self, command: str) -> list[str]:
        """The lines that a command prints; it must go well."""
        lines = self._until(f"{command}\ncode=$?; echo; echo {_DONE} $code\n", _DONE)
        assert lines.pop() == f"{_DONE} 0", (command, lines)
        return lines

    def start(self, command: str, until: str) -> list[str]:
        """Run a command in the background; the lines that it prints until one has in it what a
        pattern says."""
        return self._until(f"{command} &\n", until)

    def _until(self, text: str, end: str) -> list[str]:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(text)
        self._shell.stdin.flush()
        lines: list[str] = []
        for line in self._shell.stdout:
            lines.append(line.rstrip("\n"))
            if re.search(end, line):
                return lines
        raise AssertionError(f"the shell has ended: {lines}")

    def __enter__(self) -> "Console":
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and what it has started."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write("kill -9 $(jobs -p) 2>/dev/null; wait; exit\n")
        self._shell.stdin.close()
        self._shell.stdout.read()
        self._shell.stdout.close()
        self._shell.wait(timeout=50)
