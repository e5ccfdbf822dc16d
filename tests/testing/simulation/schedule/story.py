"""Histories of jobs made by hand: right, until a test makes one step wrong."""

import json
from typing import Any

import pytest

from onceward.engine.base import Delete, Put, Write
from onceward.testing.clock import EPOCH_MS
from onceward.testing.simulation.history import (
    Answer,
    Applied,
    Call,
    History,
    Note,
    Stored,
    Violation,
)


class Story:
    """Commits and notes, one after the other, a second apart."""

    def __init__(self) -> None:
        self.commits: list[Applied] = []
        self.notes: list[Note] = []
        self.calls: list[Call] = []
        self.final: dict[tuple[str, str], Stored] = {}
        self.at_s = 0.0
        self.calm_s = 0.0
        self.mode: Any = "shared"
        self._acts = 0

    @property
    def now_ms(self) -> int:
        return EPOCH_MS + round(self.at_s * 1000)

    @property
    def now_ns(self) -> int:
        return round(self.at_s * 1e9)

    def commit(self, *writes: tuple[str, str, Any], delete: tuple[tuple[str, str], ...] = ()):
        """Commit values under (partition, sort key), and deletions."""
        self.at_s += 1
        applied: list[Write] = [Delete(key) for key in delete]
        for key in delete:
            self.final.pop(key, None)
        for partition, sort, value in writes:
            applied.append(Put((partition, sort), json.dumps(value).encode()))
            self.final[partition, sort] = Stored(value, None)
        self.commits.append(Applied(self.now_ns, len(self.commits) + 1, applied))

    def tell(self, topic: str, body: Any, node: str = "a.1") -> None:
        self.notes.append(Note(self.now_ns, node, topic, body))

    def send(self, *ids: str, message: str = "c0-1", stage: str = "ready", **sent: Any) -> None:
        """A client sends jobs with one message."""
        sent = {"line": None, "due_ms": 0, "attempts_max": 0, **sent}
        call = Call(message, "c0", ["send", []], self.now_ns)
        jobs = [job(id_, stage) for id_ in ids]
        self.commit(("sent", message, [{"id": id_, **sent} for id_ in ids]), *jobs)
        call.answers.append(Answer(self.now_ns, "a.1", list(ids)))
        self.calls.append(call)

    def change(self, id_: str, stage: str, attempt: int = 0, **fields: Any) -> None:
        """The schedule changes a job."""
        self.commit(job(id_, stage, attempt, **fields))

    def claim(
        self, id_: str, attempt: int = 1, *, token: str = "", told: bool = True, lease_s: int = 10
    ) -> str:
        """A worker claims a job; returns the token."""
        token = token or f"{id_}:{attempt}"
        self.change(id_, "running", attempt, token=token)
        if told:
            self.tell("claimed", [id_, attempt, token, self.now_ms + lease_s * 1000])
        return token

    def act(
        self,
        what: str,
        id_: str,
        stage: str | None = None,
        attempt: int = 1,
        *,
        token: str = "",
        beside: tuple[tuple[str, str, Any], ...] = (),
        **fields: Any,
    ) -> str:
        """A worker does something; returns its name for it."""
        self._acts += 1
        token = token or f"{id_}:{attempt}"
        act = f"act {self._acts}"
        record = {"what": what, "id": id_, "token": token, **fields}
        after = () if stage is None else (job(id_, stage, attempt - (what == "release")),)
        self.commit(("act", act, record), *after, *beside)
        self.tell("did", [act, what, token])
        return act

    def complete(self, id_: str, attempt: int = 1, *, line: str | None = None) -> None:
        """A worker completes a job, with its effects."""
        effect = {"attempt": attempt, "token": f"{id_}:{attempt}", "follow": None}
        beside = [("effect", id_, [effect])]
        if line is not None:
            log = self.final.get(("log", line), Stored([], None)).value
            beside.append(("log", line, [*log, id_]))
        self.act("complete", id_, "succeeded", attempt, beside=tuple(beside))

    @property
    def history(self) -> History:
        calm_ns = round(self.calm_s * 1e9)
        return History(self.mode, self.calls, self.notes, self.final, 200, self.commits, calm_ns)


def job(id_: str, stage: str, attempt: int = 0, **fields: Any) -> tuple[str, str, Any]:
    counted = {"attempt": attempt} if attempt else {}  # records leave out what is not yet so
    return "job#0000", f"{id_}#job", {"stage": stage, **counted, **fields}


def violates(kind: str, judge: Any, match: str | None = None) -> None:
    with pytest.raises(Violation, match=match) as found:
        judge()
    assert found.value.kind == kind
