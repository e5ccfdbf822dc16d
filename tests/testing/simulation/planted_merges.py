"""Bugs planted into the merging of messages, each of a kind that the scenario must find."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from onceward.schedule import WAITING, Job
from onceward.testing.simulation.merges import Merges
from onceward.work import merging
from tests.testing.planted import Bug, search


def replace(name: str, new: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.object(merging, name, new)


def _until_the_end(job: Job) -> bool:
    """Messages are also added to a job that has started."""
    return not job.ended_ms


def _before_each_attempt(job: Job) -> bool:
    """Messages are also added to a job that waits for its next attempt."""
    return job.stage in WAITING


def _keeps_the_first(job: Job, body: Any, merge: merging.Merge) -> bool:
    """A debounced job only starts later."""
    if merge.kind == "debounce":
        return True
    return _adds(job, body, merge)


def _forgets_the_last(job: Job, body: Any, merge: merging.Merge) -> bool:
    """The message that makes a batch full is not in it."""
    before = job.body
    fits = _adds(job, body, merge)
    if fits and merge.kind == "batch" and len(job.body) == merge.size:
        job.body = before
    return fits


_adds = merging._adds

PLANTED: dict[str, Bug] = {
    "messages are added to running jobs": Bug(
        Merges,
        ("lost", "another body"),
        0,
        replace("takes_messages", _until_the_end),
    ),
    "messages are added before a retry": Bug(
        Merges,
        ("another body",),
        0,
        replace("takes_messages", _before_each_attempt),
    ),
    "a debounced job keeps its first body": Bug(
        Merges, ("lost",), 0, replace("_adds", _keeps_the_first)
    ),
    "a full batch lacks its last message": Bug(
        Merges, ("lost",), 0, replace("_adds", _forgets_the_last)
    ),
}


if __name__ == "__main__":
    search(PLANTED)
