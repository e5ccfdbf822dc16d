"""The final checks of all jobs of a run."""

import json
from collections.abc import Iterable

from onceward.engine import invariants as all_rules
from onceward.engine.base import Delete, Put, Record
from onceward.engine.invariants import Rule
from onceward.keys import Key, kind_of
from onceward.schedule import invariants as schedule_rules
from onceward.testing.simulation.history import History, Span, check_real_time, violated
from onceward.testing.simulation.schedule.replay import ENDS, Replay, replay

_RULES = (*all_rules.RULES, *schedule_rules.RULES)
# How often the invariants are checked during the run.
_LOOKS = 5


def judge_jobs(history: History) -> None:
    """Raise a `Violation` if the schedule has broken a guarantee for some job."""
    followed = replay(history)
    _judge_sends(history, followed)
    _judge_ends(history, followed)
    _judge_lines(history, followed)
    _judge_workers(history, followed)
    for note in history.notes:
        if note.topic == "trouble":
            violated("trouble", f"{note.node} could not act on {note.body}")
    judge_records(history)


def _judge_sends(history: History, followed: Replay) -> None:
    """Acknowledged jobs must exist, and be the same in all responses."""
    for call in history.calls:
        if call.request[0] != "send":
            continue
        for answer in call.answers:
            if answer.body != followed.sent.get(call.id):
                sent = followed.sent.get(call.id)
                violated("lost", f"{call.id} got {answer.body}, but it has sent {sent}")
    spans = {call.id: Span(call.called_ns, call.returned_ns, call.id) for call in history.calls}
    messages = {id_: message for message, ids in followed.sent.items() for id_ in ids}
    for line, jobs in followed.lines.items():
        order = dict.fromkeys(messages[job.id] for job in jobs)
        check_real_time([spans[message] for message in order if message in spans], line)


def _judge_ends(history: History, followed: Replay) -> None:
    """Every job must have ended, and those that succeeded had their effect once."""
    effects = history.values("effect")
    for job in followed.jobs.values():
        if job.stage not in ENDS:
            violated("lost", f"{job} has not ended")
        had = effects.pop(job.id, [])
        if len(had) > 1:
            violated("applied twice", f"{job} had the effects {had}")
        if [effect["token"] for effect in had] != [job.completed] * (job.stage == "succeeded"):
            violated("lost", f"{job} had the effects {had}")
        if had and had[0]["attempt"] != job.attempts:
            violated("miscounted", f"{job} had the effects {had}")
    if effects:
        violated("unsent", f"effects of jobs that were not sent: {effects}")


def _judge_lines(history: History, followed: Replay) -> None:
    """The jobs of an order key must have had their effects in the order of sending."""
    logs = history.values("log")
    for line, jobs in followed.lines.items():
        expected = [job.id for job in jobs if job.stage == "succeeded"]
        if logs.get(line, []) != expected:
            violated("out of order", f"{line}: {logs.get(line)} should be {expected}")


def _judge_workers(history: History, followed: Replay) -> None:
    """Reports to workers about their claims and actions must be true."""
    at_work_ns: dict[str, int] = {}
    for note in history.notes:
        if note.topic == "claimed":
            id_, number, token, _ = note.body
            attempt = followed.attempts.get(token)
            if attempt is None or (attempt.job.id, attempt.number) != (id_, number):
                violated("told", f"{note} contradicts {attempt}")
        elif note.topic in ("did", "refused"):
            act, what, token = note.body
            at_work_ns[token] = note.at_ns
            if (act in followed.acts) != (note.topic == "did"):
                violated("told", f"{note}, but the record is {followed.acts.get(act)}")
            if note.topic == "refused":
                if note.at_ns < followed.attempts[token].ended_ns:
                    violated("told", f"{note}, but it held {followed.attempts[token]}")
                history.seen["stale completion refused"] += what == "complete"
    for token, attempt in followed.attempts.items():
        late = attempt.ran_out and at_work_ns.get(token, 0) > attempt.ended_ns
        history.seen["lease ran out at work"] += late


def judge_records(history: History) -> None:
    """The records must be consistent, at some moments during the run and at the end."""
    records: dict[Key, Record] = {}
    every = len(history.commits) // _LOOKS + 1
    for number, commit in enumerate(history.commits):
        for write in commit.writes:
            if type(write) is Put:
                records[write.key] = Record(write.key, write.value, 0, write.expires_at_ms)
            elif type(write) is Delete:
                records.pop(write.key, None)
        if number % every == every - 1:
            _hold_against(_RULES, records, f"after commit {commit.version}")
    final = {
        key: Record(key, json.dumps(found.value).encode(), 0, found.expires_at_ms)
        for key, found in history.final.items()
    }
    _hold_against(_RULES, final, "in the end")


def _hold_against(rules: Iterable[Rule], records: dict[Key, Record], when: str) -> None:
    by_kind: dict[str, list[Rule]] = {}
    for rule in rules:
        by_kind.setdefault(rule.kind, []).append(rule)
    for key, record in records.items():
        for rule in by_kind.get(kind_of(key[0]), ()):
            for problem in rule.judge(record, records.get):
                violated("records", f"{when}: {'/'.join(key)}: {problem}")
