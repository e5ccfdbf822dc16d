"""Tests the mutants of one module, each in a forked process, with the tests that cover it.

A mutation within a function is applied in a process that has collected the tests, by replacing the
function's code. Code that runs when the module is imported is changed before that, in a process
that has loaded no part of the package yet. The order of the tests, generated examples and limits on
a mutant's processor time are the same in every run.
"""

import ast
import functools
import gc
import importlib.machinery
import importlib.util
import math
import os
import pickle
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import hypothesis
import pytest

from scripts.mutants.modules import dotted
from scripts.mutants.operators import Mutant

SURVIVED, KILLED, NO_TESTS, IMPORT, BROKEN = 0, 1, 5, 98, 99
# The processor time and time of a mutant beyond those of its tests without a change.
CPU_S, TIMES_CPU = 3, 5
WALL_S, TIMES_WALL = 20, 20
BYTES_MAX = 1 << 30
PLUGINS = ("pytest_asyncio.plugin", "pytest_timeout", "_hypothesis_pytestplugin")

# Loaded once, for all processes that are forked from this one.
for _name in (*PLUGINS, "asyncio", "msgspec", "sortedcontainers"):
    importlib.import_module(_name)

_stderr = os.dup(2)

Place = tuple[str, int]
"""The qualified name of a function, and its first line."""


@dataclass
class Look:
    """The results of a run of the tests without a change."""

    imported: set[int] = field(default_factory=set)
    """The lines that ran before any test."""
    lines: dict[str, set[int]] = field(default_factory=dict)
    """The lines that each test covers."""
    seconds: dict[str, float] = field(default_factory=dict)
    functions: set[Place] = field(default_factory=set)
    """The functions whose code can be replaced."""
    failed: list[str] = field(default_factory=list)


class Trial:
    """The mutants of one module, and its tests."""

    def __init__(self, root: Path, module: str, tests: list[str]) -> None:
        self.file = str(root / module)
        self._name = dotted(module)
        self._tests = tests
        self._basetemp = tempfile.mkdtemp(prefix="mutants-")
        self.look = Look()

    def close(self) -> None:
        shutil.rmtree(self._basetemp, ignore_errors=True)

    def prepare(self) -> list[str]:
        """Run the tests without a change; returns those that fail."""
        with tempfile.NamedTemporaryFile() as file:
            status = _wait(_fork(lambda: self._main(_Looking(self.file, Path(file.name)))))
            told = Path(file.name).read_bytes()
        if not told:
            return [f"the tests could not be run: {status}"]
        self.look = pickle.loads(told)
        return self.look.failed

    def run(self, tree: ast.Module, mutants: Iterable[Mutant]) -> Iterator[tuple[Mutant, str]]:
        """Each mutant with its verdict: killed, hung or survived."""
        inside, outside = [], []
        for mutant in mutants:
            early = mutant.function not in self.look.functions
            (outside if early or self.look.imported & {*mutant.lines} else inside).append(mutant)
        if inside:
            for mutant, verdict in self._run_inside(tree, inside):
                if verdict == "import":
                    outside.append(mutant)
                else:
                    yield mutant, verdict
        for mutant in outside:
            yield mutant, self.judge(mutant, self.look.seconds, self._import, tree)

    def _run_inside(self, tree: ast.Module, mutants: list[Mutant]) -> Iterator[tuple[Mutant, str]]:
        """Test mutants within functions, in a process that has collected the tests."""
        reading, writing = os.pipe()
        child = _fork(lambda: self._main(_Trying(self, tree, mutants, writing)))
        os.close(writing)
        try:
            with os.fdopen(reading) as verdicts:
                for line in verdicts:
                    number, verdict = line.split()
                    yield mutants[int(number)], verdict
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def chosen(self, mutant: Mutant) -> dict[str, float]:
        """The tests that cover a mutant, fastest first, with their durations."""
        seconds = self.look.seconds
        names = [name for name, lines in self.look.lines.items() if lines & {*mutant.lines}]
        return {name: seconds[name] for name in sorted(names, key=seconds.__getitem__)}

    def judge(self, mutant: Mutant, tests: dict[str, float], act: Callable, *args: Any) -> str:
        if not tests:
            return "survived"
        allowed = _Allowed(sum(tests.values()))
        status = _wait(_fork(lambda: act(mutant, *args), allowed))
        if status == SURVIVED:
            return "survived"
        if status == IMPORT:
            return "import"
        if status in (NO_TESTS, BROKEN):
            os.write(_stderr, f"{self._name}: {mutant.name} could not be tested\n".encode())
            return "broken"
        return "hung" if status in (-signal.SIGXCPU, -signal.SIGALRM) else "killed"

    def _import(self, mutant: Mutant, tree: ast.Module) -> int:
        """Run the tests with a module that is changed before its import."""
        mutant.apply()
        code = compile(tree, self.file, "exec")
        sys.meta_path.insert(0, _Changed(self._name, self.file, code))
        return self._main(_Ordering(self.look.seconds))

    def exchange(
        self,
        mutant: Mutant,
        tree: ast.Module,
        functions: list[FunctionType],
        items: list[pytest.Item],
    ) -> int:
        """Run the collected tests with other code for the changed function."""
        mutant.apply()
        new = {_place(code): code for code in _outermost(compile(tree, self.file, "exec"))}
        for function in functions:
            if _place(function.__code__) == mutant.function:
                try:
                    function.__code__ = new[mutant.function]
                except ValueError:  # the new code uses other variables of its enclosing scope
                    return IMPORT
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return SURVIVED

    def _main(self, plugin: object) -> int:
        """Run pytest without output."""
        silent = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(silent, number)
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        loaded = [word for name in PLUGINS for word in ("-p", name)]
        # Without conftest.py: unit tests of pure modules need no servers.
        given = ("-p", "no:cacheprovider", "--noconftest", "--capture=no", "--assert=plain")
        where = ("--timeout=0", f"--basetemp={self._basetemp}")
        options = [*loaded, *given, *where, *self._tests]
        return int(pytest.main(options, plugins=[_Settled(), plugin]))


class _Settled:
    """Generated examples are the same in every run, and failing ones are not shrunk."""

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "no_cover: for the plugin that measures coverage")
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "mutants",
            phases=phases,
            deadline=None,
            derandomize=True,
            database=None,
            report_multiple_bugs=False,
        )
        hypothesis.settings.load_profile("mutants")


class _Ending:
    """The first failing test ends the process."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os._exit(KILLED)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            os._exit(KILLED)


class _Looking:
    """Records the lines that tests cover."""

    def __init__(self, file: str, result: Path) -> None:
        self._file, self._result = file, result
        self._look = Look()
        self._trace(self._look.imported)

    def _trace(self, lines: set[int]) -> None:
        def inside(frame: FrameType, event: str, arg: Any) -> Any:
            lines.add(frame.f_lineno)
            return inside

        def begin(frame: FrameType, event: str, arg: Any) -> Any:
            return inside(frame, event, arg) if frame.f_code.co_filename == self._file else None

        sys.settrace(begin)
        threading.settrace(begin)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.settrace(None)
        look = self._look
        places = {_place(function.__code__) for function in _functions(self._file)}
        look.functions = places & _distinct(self._file)
        caches = _caches(self._file)
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            for cache in caches:
                cache.cache_clear()  # cached results would hide lines that other tests cover
            lines = look.lines[item.nodeid] = set()
            began = time.process_time()
            self._trace(lines)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            sys.settrace(None)
            look.seconds[item.nodeid] = time.process_time() - began
        self._result.write_bytes(pickle.dumps(look))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._look.failed.append(f"{report.nodeid}: {report.longreprtext[-300:]}")


class _Ordering(_Ending):
    """Fastest tests first."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._seconds.get(item.nodeid, math.inf))


class _Trying(_Ending):
    """Tests mutants one after the other when all tests are collected."""

    def __init__(
        self, trial: Trial, tree: ast.Module, mutants: list[Mutant], verdicts: int
    ) -> None:
        self._trial, self._tree, self._mutants = trial, tree, mutants
        self._verdicts = verdicts

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        by_name = {item.nodeid: item for item in session.items}
        functions = _functions(self._trial.file)
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        gc.collect()
        gc.freeze()
        for number, mutant in enumerate(self._mutants):
            tests = self._trial.chosen(mutant)
            items = [by_name[name] for name in tests]
            verdict = self._trial.judge(
                mutant, tests, self._trial.exchange, self._tree, functions, items
            )
            os.write(self._verdicts, f"{number} {verdict}\n".encode())
        return True


class _Changed(importlib.machinery.SourceFileLoader):
    """Finds and loads a module with other code than its file has."""

    def __init__(self, name: str, file: str, code: CodeType) -> None:
        super().__init__(name, file)
        self._code = code

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name == self.name:
            return importlib.util.spec_from_file_location(name, self.path, loader=self)
        return None

    def get_code(self, fullname: str) -> CodeType:
        return self._code


class _Allowed:
    """Resource limits of a process."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def enforce(self) -> None:
        cpu_s = math.ceil(CPU_S + TIMES_CPU * self._seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (BYTES_MAX, BYTES_MAX))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, WALL_S + TIMES_WALL * self._seconds)


def _fork(act: Callable[[], int], allowed: _Allowed | None = None) -> int:
    """Start a process that exits with the result of `act`."""
    child = os.fork()
    if child:
        return child
    status = BROKEN
    try:
        if allowed:
            allowed.enforce()
        status = act()
    except BaseException:
        told = traceback.format_exc()
        if "MemoryError" in told:  # an endless loop, like a hanging mutant
            status = KILLED
        else:
            os.write(_stderr, told.encode())
    finally:
        os._exit(status)


def _wait(child: int) -> int:
    """The exit code of a process, or the signal that ended it as a negative number."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _functions(file: str) -> list[FunctionType]:
    return [
        function
        for function in gc.get_objects()
        if isinstance(function, FunctionType) and function.__code__.co_filename == file
    ]


def _caches(file: str) -> list[Any]:
    """The caches of functions of a file."""
    found = []
    for cache in gc.get_objects():
        if isinstance(cache, functools._lru_cache_wrapper):
            wrapped = getattr(cache.__wrapped__, "__func__", cache.__wrapped__)
            if isinstance(wrapped, FunctionType) and wrapped.__code__.co_filename == file:
                found.append(cache)
    return found


def _distinct(file: str) -> set[Place]:
    """The outermost functions of a file with a unique name and line."""
    source = Path(file).read_text(encoding="utf-8")
    places = [_place(code) for code in _outermost(compile(source, file, "exec"))]
    return {place for place in places if places.count(place) == 1}


def _outermost(code: CodeType) -> Iterator[CodeType]:
    """The code of functions of a module and its classes, without nested functions."""
    for const in code.co_consts:
        if isinstance(const, CodeType):
            if const.co_flags & 0x1:  # it has local variables: a function
                yield const
            else:
                yield from _outermost(const)


def _place(code: CodeType) -> Place:
    return code.co_qualname, code.co_firstlineno
