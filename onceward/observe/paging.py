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
    """The next page of items that a caller may see and that match `fits`, at most `limit` of them.

    `read` gets a position and a number, and returns the items behind that position with their own
    positions. Returns the items and the cursor of the next page, or None at the end. A page may be
    shorter when it takes too long. Raises `BadInput` if the caller may see none of very many items.
    """
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
                f"none of the first {reads * limits.PAGE_JOBS:,} names is visible to you; add a "
                "prefix of the names that you may see",
                code="bad_parameter",
            )
