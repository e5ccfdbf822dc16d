"""The outcome of a run: what a user could see at its end, without ids and times."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from onceward.keys import USER
from onceward.schedule import state_of
from onceward.testing.clock import EPOCH_MS
from onceward.testing.proof.services import Services
from onceward.testing.simulation.history import History

_ID: Final = re.compile(r"\b0[0-9A-HJKMNP-TV-Z]{24,32}\b")
_UUID: Final = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")
_YEAR_MS: Final = 366 * 86_400_000
_ENTERED: Final = "<result of the operator>"
Lines = Counter[str]
"""The parts of an outcome, one line each."""


class Names:
    """Replaces ids by names that are the same in all runs, and the results that an operator has
    `entered`."""

    def __init__(self, entered: Sequence[Any]) -> None:
        self.known: dict[str, str] = {}
        self._entered = entered

    def plain(self, value: Any) -> Any:
        """A value without ids and times."""
        if any(type(value) is type(one) and value == one for one in self._entered):
            return _ENTERED
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.plain(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(one) for one in value]
        if isinstance(value, int | float) and type(value) is not bool:
            near = [EPOCH_MS, EPOCH_MS / 1000, EPOCH_MS * 1000, EPOCH_MS * 1_000_000]
            scales = (1, 1 / 1000, 1000, 1_000_000)
            if any(abs(value - at) < _YEAR_MS * by for at, by in zip(near, scales, strict=True)):
                return "<time>"
        return value

    def text(self, text: str) -> str:
        text = _ID.sub(lambda found: self.known.get(found[0], "<id>"), text)
        return _DATE.sub("<time>", _UUID.sub("<uuid>", text))


def outcome_of(
    history: History,
    shown: Mapping[str, Any],
    services: Services,
    sent: Mapping[int, str],
    ignored: Callable[[str], bool],
    entered: Sequence[Any] = (),
) -> Lines:
    """The outcome of a run, without the lines that are `ignored`. `entered` are the results of
    steps from an operator, which knows the response of a service and not what the step makes of
    it."""
    names = Names(entered)
    rows = {
        key[1].removesuffix("#job"): stored.value
        for key, stored in history.final.items()
        if key[0].startswith("job#") and key[1].endswith("#job")
    }
    by_id = {id_: number for number, id_ in sent.items()}
    for id_ in sorted(rows, key=lambda id_: (id_ not in by_id, rows[id_]["created_ms"], id_)):
        job = rows[id_]
        name = f"{job['queue']}({json.dumps(names.plain(job.get('body')), sort_keys=True)})"
        names.known[id_] = f"message {by_id[id_] + 1}" if id_ in by_id else name
    return Counter(
        line for line in _lines(history, shown, services, rows, names) if not ignored(line)
    )


def _lines(
    history: History,
    shown: Mapping[str, Any],
    services: Services,
    rows: Mapping[str, Any],
    names: Names,
) -> Iterable[str]:
    for id_, job in rows.items():
        state = state_of(job["stage"], job.get("attempt", 0))
        result = "" if job.get("result") is None else f", result {_json(names, job['result'])}"
        why = f": {names.text(job['reason'])}" if state == "failed" and job.get("reason") else ""
        yield f"job {names.known[id_]} of {job['queue']} is {state}{result}{why}"
    for key, stored in history.final.items():
        if key[0].startswith(USER):
            place = names.text(f"{key[0].removeprefix(USER)}, {key[1]}")
            yield f"record ({place}) is {_json(names, stored.value)}"
        elif key[0].startswith("timer#"):
            timer = stored.value
            target = timer["spec"].get("target")
            state = timer.get("state", "active")
            yield f"timer {names.text(key[1])} to {_json(names, target)} is {state}"
    for id_, room in shown.get("rooms", {}).items():
        yield f"room {names.text(id_)} is {_json(names, room)}"
    for post in services.posted:
        yield f"POST {names.text(post.url)} {_json(names, post.body)} took effect"
    for url, body in services.records.items():
        yield f"{names.text(url)} is {_json(names, body)}"


def _json(names: Names, value: Any) -> str:
    return json.dumps(names.plain(value), sort_keys=True)


def without_results(outcome: Lines) -> Lines:
    """An outcome without the results of jobs, for runs in which an operator has entered some."""
    plain: Lines = Counter()
    for line, count in outcome.items():
        plain[line.partition(", result ")[0] if line.startswith("job ") else line] += count
    return plain


def equal(found: Lines, allowed: Lines) -> bool:
    """Whether two outcomes are the same, if a result that an operator has entered equals any
    value."""
    left = allowed - found
    for line in (found - allowed).elements():
        parts = map(re.escape, line.split(json.dumps(_ENTERED)))
        pattern = re.compile(".*".join(parts), re.S)
        same = next(filter(pattern.fullmatch, left), None)
        if same is None:
            return False
        left -= Counter([same])
    return not left


def difference(found: Lines, allowed: Iterable[Lines]) -> tuple[list[str], list[str]]:
    """The lines that the nearest allowed outcome has and `found` lacks, and those that only
    `found` has."""

    def apart(one: Lines) -> tuple[int, list[str], list[str]]:
        missing, extra = sorted((one - found).elements()), sorted((found - one).elements())
        return len(missing) + len(extra), missing, extra

    _, missing, extra = min(map(apart, allowed), key=lambda one: one[0])
    return missing, extra
