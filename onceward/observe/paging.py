"""Paging of lists that a caller may see only in part.

A cursor is the name of an item that the caller may see, so it reveals no other names.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from onceward import limits
from onceward.clock import Clock
from onceward.errors import BadInput

T = TypeVar("T")


async def page_of(
    clock: Clock,
    read: Callable[[str, int], Awaitable[list[tuple[str, T]]]],
    may_see: Callable[[T], bool],
    fits: Callable[[T], bool] = lambda one: True,
    *,
    after: str,
    limit: int,
) -> tuple[list[T], str | None]:
    """The next ones that a caller may see and that fit, `limit` at the most, and behind which one
    to go on; None: there are no more. `read` gets so many from behind a place on, each with its
    own. It takes no longer than a request may once there is one to go on behind. Raises `BadInput`
    if there is none among very many."""
    found: list[T] = []
    seen: str | None = None
    until_ns = clock.elapsed_ns() + limits.PAGE_MS * 1_000_000
    reads = 0
    while True:
        reads += 1
        rows = await read(after, limits.PAGE_JOBS)
        for after, one in rows:
            if may_see(one):
                seen = after
                if fits(one):
                    found.append(one)
                if len(found) == limit:
                    return found, seen
        if len(rows) < limits.PAGE_JOBS:
            return found, None
        if seen is not None and clock.elapsed_ns() >= until_ns:
            return found, seen
        if seen is None and reads >= limits.PAGE_READS_MAX:
            raise BadInput(
                f"you may see none of the {reads * limits.PAGE_JOBS:,} that come first: ask for a "
                "prefix of the names of those that you may see",
                code="bad_parameter",
            )
