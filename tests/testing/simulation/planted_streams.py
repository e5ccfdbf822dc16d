"""Bugs planted into the output of jobs, each of a kind that the scenario must find."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from onceward.output_writer import OutputWriter
from onceward.testing.simulation.streams import Streams
from onceward.work import output
from onceward.work.job import Job
from tests.testing.planted import Bug, search


def replace(target: Any, name: str, new: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.object(target, name, new)


async def _no_flush(self: OutputWriter) -> None:
    """What waits for a commit is lost."""


@contextmanager
def steps_first() -> Iterator[None]:
    """A step is recorded before its chunks are stored."""
    real = Job._done

    async def done(self: Any, name: str, result: Any, started_ms: int) -> Any:
        written, self.output = self.output, None
        try:
            return await real(self, name, result, started_ms)
        finally:
            self.output = written

    with patch.object(Job, "_done", done):
        yield


@contextmanager
def never_restarted() -> Iterator[None]:
    """A later run appends to the stream of the run before."""

    async def restart(tx: Any, id_: str, found: Any, run: Any, attempt: int) -> None:
        found.token, found.run, found.attempt, found.chunks = run.token, run.number, attempt, 0

    with patch.object(output, "_restart", restart):
        yield


@contextmanager
def pages_left() -> Iterator[None]:
    """A restart leaves the pages of the run before."""

    async def pages(tx: Any, id_: str, after: int, most: int) -> list[Any]:
        return [] if after == 0 and most == output._PAGES_MAX else await real(tx, id_, after, most)

    real = output._pages
    with patch.object(output, "_pages", pages):
        yield


@contextmanager
def restarts_untold() -> Iterator[None]:
    """Readers are not told of a restart."""
    real = output.read

    async def read(tx: Any, id_: str, job: Any, after: int) -> Any:
        return msgspec.structs.replace(await real(tx, id_, job, after), restarted=0)

    with patch.object(output, "read", read):
        yield


PLANTED: dict[str, Bug] = {
    "what waits at the end of an attempt is lost": Bug(
        Streams, ("stream", "progress"), 0, replace(OutputWriter, "flush", _no_flush)
    ),
    "a step is recorded before its chunks": Bug(Streams, ("stream",), 3, steps_first),
    "a retry appends to the stream": Bug(Streams, ("stream",), 0, never_restarted),
    "a retry leaves pages": Bug(Streams, ("stream", "order", "reader"), 0, pages_left),
    "a retry drops the chunks of recorded steps": Bug(
        Streams, ("stream",), 0, replace(output, "_of_steps", lambda chunks, steps: [])
    ),
    "a retry keeps the chunks of all steps": Bug(
        Streams,
        ("stream",),
        12,
        replace(
            output,
            "_of_steps",
            lambda chunks, steps: [output.Chunk(one.value, one.step) for one in chunks if one.step],
        ),
    ),
    "readers are not told of a restart": Bug(Streams, ("reader",), 0, restarts_untold),
}


if __name__ == "__main__":
    search(PLANTED)
