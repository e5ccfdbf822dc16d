"""Mutation testing: changes modules in small ways, and checks that their tests fail.

    python -m scripts.mutants                         all modules, from the beginning
    python -m scripts.mutants --only onceward/keys    one module, or those below a folder
    python -m scripts.mutants --go-on --seconds 120   untested mutants, for a limited time
    python -m scripts.mutants --again                 surviving mutants, with new tests
    python -m scripts.mutants --tell                  the known results, without a run

Fails if fewer than 90% of the mutants are killed, if one survives without an explanation, if tests
fail without any change, or if `explained.toml` has explanations for mutants that are gone or
killed.

Common tools start an interpreter for each mutant, or skip code that runs when a module is imported.
Here a mutant within a function costs a fork and the few tests that cover it. Thousands of mutants
take minutes.
"""

import argparse
import ast
import json
import os
import pickle
import sys
import time
from pathlib import Path

from scripts.mutants import results
from scripts.mutants.modules import modules, tests_of
from scripts.mutants.operators import Mutant, find
from scripts.mutants.results import Result
from scripts.mutants.trial import Trial

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "mutants"
EXPLAINED = Path(__file__).parent / "explained.toml"
SAVED = ROOT / "benchmarks" / "results" / "mutants.json"
PAGE = ROOT / "docs" / "reliability.md"
SAVE_S = 2.0


def main() -> int:
    given = _arguments()
    wanted = [module for module in modules() if module.startswith(tuple(given.only) or "")]
    if not wanted:
        raise SystemExit(f"no module starts with {' or '.join(given.only)}")
    if not (given.go_on or given.again or given.tell):
        for module in wanted:
            results.forget(KEPT, module)
    KEPT.mkdir(parents=True, exist_ok=True)
    failed = 0 if given.tell else _try_all(wanted, given)
    return _tell(wanted, given, failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.mutants")
    parser.add_argument("--only", nargs="*", default=[], help="prefixes of modules [all]")
    parser.add_argument("--go-on", action="store_true", help="keep earlier results")
    parser.add_argument("--again", action="store_true", help="retry surviving mutants")
    parser.add_argument("--tell", action="store_true", help="show results without a run")
    parser.add_argument("--seconds", type=float, default=1e9, help="time limit [none]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def _try_all(wanted: list[str], given: argparse.Namespace) -> int:
    """Test modules in separate processes, some at once; returns the number of failures."""
    ends = time.monotonic() + given.seconds
    # The largest first, so that no long one is left at the end.
    waiting = sorted(wanted, key=lambda module: (ROOT / module).stat().st_size)
    running: set[int] = set()
    failed = 0
    while running or (waiting and time.monotonic() < ends):
        if waiting and len(running) < given.jobs and time.monotonic() < ends:
            module = waiting.pop()
            child = os.fork()
            if not child:
                status = 1
                try:
                    status = _try(module, given.again, ends)
                finally:
                    sys.stdout.flush()
                    os._exit(status)
            running.add(child)
        else:
            child, status = os.wait()
            running.discard(child)
            failed += status != 0
    return failed


def _try(module: str, again: bool, ends: float) -> int:
    """Test the mutants of a module that have no result yet, or that survived."""
    own = tests_of(ROOT, module)
    result = results.load(KEPT, module)
    source, own_tests = results.digest(ROOT, [module]), results.digest(ROOT, own)
    if result.source != source or (result.tests != own_tests and not again):
        result.verdicts = {}
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"), module)
    mutants = find(tree)
    result.keep(mutant.name for mutant in mutants)
    wanted = [mutant for mutant in mutants if _open(result, mutant, again)]
    if not wanted:
        return 0
    result.source, result.tests = source, own_tests
    trial = Trial(ROOT, module, own)
    began = saved = time.monotonic()
    known = KEPT / f"{source}-{own_tests}.look"
    try:
        if known.exists():
            trial.look = pickle.loads(known.read_bytes())
        elif failing := trial.prepare():
            print(f"{module}: tests fail without a change:\n  " + "\n  ".join(failing))
            return 1
        known.write_bytes(pickle.dumps(trial.look))
        for mutant, verdict in trial.run(tree, wanted):
            result.verdicts[mutant.name] = verdict
            if time.monotonic() > saved + SAVE_S:
                results.save(KEPT, result)
                saved = time.monotonic()
            if time.monotonic() > ends:
                break
    finally:
        result.seconds += time.monotonic() - began
        results.save(KEPT, result)
        trial.close()
    survived = len(result.names("survived"))
    print(
        f"{module}: {len(result.verdicts)} mutants, {survived} survived,"
        f" {len(result.names('hung'))} hung, {len(own)} files of tests,"
        f" {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return 0


def _open(result: Result, mutant: Mutant, again: bool) -> bool:
    verdict = result.verdicts.get(mutant.name)
    return verdict is None or (again and verdict == "survived")


def _tell(wanted: list[str], given: argparse.Namespace, failed: int) -> int:
    known = {module: results.load(KEPT, module) for module in wanted}
    explained = results.explanations(EXPLAINED)
    if given.only:
        explained = {name: why for name, why in explained.items() if name in known}
    open_ = 0
    for module, result in known.items():
        tree = ast.parse((ROOT / module).read_text(encoding="utf-8"), module)
        names = {mutant.name: mutant for mutant in find(tree)}
        result.keep(names)
        open_ += len(names.keys() - result.verdicts.keys())
        for name in result.names("survived"):
            if name not in explained.get(module, {}):
                print(f"{module}:{names[name].lines.start}: {name}")
    told = results.rows(explained, known)
    print(results.table(told))
    if open_:
        print(f"{open_} mutants are not tested yet")
        return 1
    problems = results.stale(explained, known)
    for module, result in known.items():
        problems += [f"{module}: {name} could not be tried" for name in result.names("broken")]
    problems += results.shortcomings(told)
    for problem in problems:
        print(problem)
    if not given.only:
        SAVED.parent.mkdir(parents=True, exist_ok=True)
        SAVED.write_text(json.dumps(told, indent=1) + "\n")
        if PAGE.exists():
            results.write_between(PAGE, results.table(told))
    return 1 if failed or problems else 0


if __name__ == "__main__":
    sys.exit(main())
