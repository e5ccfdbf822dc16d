"""Replay of all commits of a run: checks every transition of every job.

It parses the records of jobs as text, and the records that senders (`sent`) and workers (`act`,
`effect`, `log`) wrote in the same commits. It decides independently what the schedule should have
done.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from onceward.engine.base import Put
from onceward.testing.clock import EPOCH_MS
from onceward.testing.simulation.history import NEVER_NS, Applied, History, violated

ENDS: Final = ("succeeded", "failed")
_LOOSE: Final = ("due", "ready")
# Permitted transitions of a job without a lease, besides a claim.
_QUIET: Final = {
    ("", "blocked"),
    *(("", stage) for stage in _LOOSE),
    *(("blocked", stage) for stage in _LOOSE),
    ("due", "ready"),
}


@dataclass(slots=True)
class Job:
    """A job, as of the commits that have been followed."""

    id: str
    line: str | None
    due_ms: int
    attempts_max: int
    stage: str = ""
    attempts: int = 0
    """The number of attempts that count."""
    token: str = ""
    """The token of its last attempt."""
    completed: str = ""
    """The token of the attempt that has completed it."""


@dataclass(slots=True)
class Attempt:
    """A lease of a job."""

    job: Job
    number: int
    until_ms: int
    """The end of the lease as last reported to the worker."""
    ended_ns: int = NEVER_NS
    ran_out: bool = False


@dataclass(slots=True)
class Replay:
    """The state of a run after the followed commits."""

    clock_error_ms: int
    told_until_ms: dict[str, int]
    """By token: the end of the lease as first reported to its worker."""
    seen: Counter[str]
    jobs: dict[str, Job] = field(default_factory=dict)
    sent: dict[str, list[str]] = field(default_factory=dict)
    """By message: the jobs that it sent, in the order of the commits."""
    lines: dict[str, list[Job]] = field(default_factory=dict)
    """The jobs of each order key, in the order of sending."""
    attempts: dict[str, Attempt] = field(default_factory=dict)
    """By token."""
    acts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Actions of workers, by their unique names."""

    def apply(self, commit: Applied) -> None:
        """Follow one commit."""
        acts: dict[str, dict[str, Any]] = {}
        changes: dict[str, dict[str, Any]] = {}
        for write in commit.writes:
            if type(write) is not Put:
                continue
            (partition, sort), value = write.key, write.value
            if partition == "sent":
                self._send(sort, json.loads(value))
            elif partition == "act":
                act = self.acts[sort] = json.loads(value)
                acts[act["id"]] = act
            elif partition.startswith("job#") and sort.endswith("#job"):
                changes[sort.removesuffix("#job")] = json.loads(value)
        for id_, record in changes.items():
            if id_ not in self.jobs:
                violated("unsent", f"job {id_} exists but was not sent: {record}")
            self._change(self.jobs[id_], record, acts.pop(id_, None), commit.at_ns)
        for act in acts.values():
            self._extend(act)

    def _send(self, message: str, sent: list[dict[str, Any]]) -> None:
        if message in self.sent:
            violated("applied twice", f"{message} has sent {self.sent[message]}, and then {sent}")
        self.sent[message] = [one["id"] for one in sent]
        for one in sent:
            job = Job(one["id"], one["line"], one["due_ms"], one["attempts_max"])
            self.jobs[job.id] = job
            if job.line is not None:
                self.lines.setdefault(job.line, []).append(job)

    def _extend(self, act: dict[str, Any]) -> None:
        if act["what"] != "extend":
            violated("torn", f"{act} has left its job as it was")
        attempt = self._held(act)
        if act["until_ms"] < attempt.until_ms:
            violated("early", f"{act} made a lease shorter, that was until {attempt.until_ms}")
        attempt.until_ms = act["until_ms"]
        self.seen["lease renewed"] += 1

    def _held(self, act: dict[str, Any]) -> Attempt:
        """The attempt of an action, which must be the current one."""
        job = self.jobs[act["id"]]
        if job.stage != "running" or job.token != act["token"]:
            violated("stale", f"{act} succeeded while the job was {job}")
        return self.attempts[job.token]

    def _change(
        self, job: Job, record: dict[str, Any], act: dict[str, Any] | None, at_ns: int
    ) -> None:
        stage, at_ms = record["stage"], EPOCH_MS + at_ns // 1_000_000
        if stage in (*_LOOSE, *ENDS) and record.get("token"):
            violated("torn", f"{job} has a token, but is {stage}")
        if act is not None:
            self._held(act)
            self._act(job, record, act)
        elif stage == "running":
            self._claim(job, record, at_ms)
        elif job.stage == "running":
            self._lapse(job, record, at_ms)
        elif (job.stage, stage) not in _QUIET:
            violated("torn", f"{job} is now {record} without an action")
        elif stage == "ready":
            self._check_due(job, at_ms)
        if record.get("attempt", 0) != job.attempts:
            violated("miscounted", f"{job} is now {record}")
        if job.stage == "running":
            self.attempts[job.token].ended_ns = at_ns
        job.stage = stage

    def _claim(self, job: Job, record: dict[str, Any], at_ms: int) -> None:
        token = record["token"]
        if job.stage != "ready" or token in self.attempts:
            violated("claimed twice", f"{job} is now {record}")
        self._check_due(job, at_ms)
        if job.line is not None:
            first = next(one for one in self.lines[job.line] if one.stage not in ENDS)
            if first is not job:
                violated("out of order", f"{job} was claimed before {first}")
        job.attempts += 1
        job.token = token
        until_ms = self.told_until_ms.get(token, 0)
        self.attempts[token] = Attempt(job, job.attempts, until_ms)

    def _check_due(self, job: Job, at_ms: int) -> None:
        early_ms = job.due_ms - self.clock_error_ms - 1 - at_ms
        if early_ms > 0:
            violated("early", f"{job} was taken {early_ms} ms before its time")

    def _lapse(self, job: Job, record: dict[str, Any], at_ms: int) -> None:
        """The lease was ended by the schedule."""
        attempt = self.attempts[job.token]
        if record.get("attempt", 0) == job.attempts - 1:
            # A claim whose worker had gone: it does not count.
            if job.token in self.told_until_ms:
                violated("taken away", f"{attempt} was given back, but its worker had it")
            job.attempts -= 1
            self._check_loose(job, record)
            self.seen["claim given back"] += 1
            return
        early_ms = attempt.until_ms - self.clock_error_ms - 1 - at_ms
        if early_ms > 0:
            violated("early", f"{attempt} was ended {early_ms} ms before its lease ran out")
        attempt.ran_out = True
        self.seen["lease ran out"] += 1
        self._over(job, record, given_up=False)

    def _act(self, job: Job, record: dict[str, Any], act: dict[str, Any]) -> None:
        what = act["what"]
        if what == "complete":
            if record["stage"] != "succeeded":
                violated("torn", f"{job} was completed, but is {record}")
            job.completed = act["token"]
        elif what == "release":
            job.attempts -= 1
            self._check_loose(job, record)
            self.seen["job released"] += 1
        elif what in ("fail", "give up"):
            job.due_ms = act["due_ms"]
            self._over(job, record, given_up=what == "give up")
        else:
            violated("torn", f"{act} has changed {job} to {record}")

    def _over(self, job: Job, record: dict[str, Any], *, given_up: bool) -> None:
        """An attempt has failed: the job must have failed exactly if no attempts are left."""
        used_up = 0 < job.attempts_max <= job.attempts
        if record["stage"] == "failed":
            if not used_up and not given_up:
                violated("failed", f"{job} has failed with attempts left")
            self.seen["job given up" if given_up and not used_up else "job failed"] += 1
            return
        if used_up or given_up:
            violated("miscounted", f"{job} should have failed, but is {record}")
        self._check_loose(job, record)
        self.seen["job retried"] += 1
        if job.line is not None:
            waiting = [one for one in self.lines[job.line] if one.stage == "blocked"]
            self.seen["head retried while others waited"] += bool(waiting)

    def _check_loose(self, job: Job, record: dict[str, Any]) -> None:
        if record["stage"] not in _LOOSE:
            violated("torn", f"{job} should wait for another attempt, but is {record}")


def replay(history: History) -> Replay:
    """Follow all commits of a run; raises at the first invalid step."""
    told_until_ms = {n.body[2]: n.body[3] for n in history.notes if n.topic == "claimed"}
    followed = Replay(history.clock_error_ms, told_until_ms, history.seen)
    for commit in history.commits:
        followed.apply(commit)
    return followed
