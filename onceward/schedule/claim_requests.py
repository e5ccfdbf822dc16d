"""Requests: what is asked for at a desk, by workers here and elsewhere."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from onceward.schedule import Claim


class Request(Protocol):
    """A worker that asks for jobs. It is answered once, by `give` or `fail`."""

    @property
    def worker(self) -> str: ...
    @property
    def lease_ms(self) -> int: ...
    @property
    def most(self) -> int: ...

    @property
    def local(self) -> bool:
        """Whether it is a handler of this process."""

    @property
    def gone(self) -> bool:
        """Whether nobody waits for the answer any more."""

    def give(self, claims: list[Claim]) -> None: ...
    def fail(self, error: Exception) -> None: ...


@dataclass(eq=False, slots=True)
class Waiting:
    """A request in line, of somebody who waits for the answer."""

    worker: str
    lease_ms: int
    most: int
    patient: bool
    """Whether it waits for jobs to arrive, or wants to know what is there."""
    answer: "asyncio.Future[list[Claim]]"
    time_is_up: bool = False

    @property
    def local(self) -> bool:
        return False

    @property
    def gone(self) -> bool:
        return self.answer.done()

    def give(self, claims: list[Claim]) -> None:
        self.answer.set_result(claims)

    def fail(self, error: Exception) -> None:
        self.answer.set_exception(error)

    def dismiss(self) -> None:
        """Answer with nothing; one whose worker has just gone needs no answer."""
        if not self.answer.done():
            self.answer.set_result([])
