"""Tests that repeat a failing run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from pprint import pformat
from typing import Any

from onceward.errors import BadInput
from onceward.testing.proof.messages import Message
from onceward.testing.proof.search import Case, Difference, Proof

_TEST = '''"""A failing run that `onceward simulate` has found: seed {seed}."""

from onceward.testing.proof import replay

SENDERS = {senders}

FAULTS = {faults}


def test_the_outcome_equals_one_without_faults():
    replay({app!r}, seed={seed}, senders=SENDERS, faults=FAULTS{options})
'''


def replay(
    app: Any,
    *,
    seed: int,
    senders: Sequence[Sequence[tuple[Any, ...]]],
    faults: Sequence[str],
    ignore: Sequence[str] = (),
    events: Mapping[str, Sequence[Any]] | None = None,
) -> None:
    """Repeat a run with some faults of a seed. Raises `SimulationFailed` if its outcome differs
    from all runs without faults."""
    proof = Proof(app, ignore=ignore, events=events)
    messages = tuple(tuple(Message(*one) for one in sender) for sender in senders)
    case = Case(seed, messages, frozenset(faults))
    with proof.ready() as make:
        run, why = proof.look(make, case)
        if why:
            raise Difference(proof.report(case, run, why), case)


def write_test(proof: Proof, found: Difference, path: str) -> None:
    """Write a pytest file that fails as the run does. Raises `BadInput` if it exists."""
    case = found.case
    if not proof.name:
        raise BadInput("a test needs the name of the application: simulate module:name")
    senders = [[tuple(one) for one in sender] for sender in case.senders]
    options = f", ignore={list(proof.ignore)!r}" if proof.ignore else ""
    options += f", events={proof.events!r}" if proof.events else ""
    text = _TEST.format(
        seed=case.seed,
        senders=pformat(senders, width=90),
        faults=pformat(sorted(case.keep or ()), width=90),
        app=proof.name,
        options=options,
    )
    try:
        with Path(path).open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise BadInput(f"cannot write {path!r}: {error}") from error
