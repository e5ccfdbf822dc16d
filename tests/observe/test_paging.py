"""Pages of a list of which a caller may see a part."""

from collections.abc import Callable

import pytest

from onceward import limits
from onceward.errors import BadInput
from onceward.observe.paging import page_of
from onceward.testing.clock import VirtualClock
from tests.schedule.cluster import virtual

NAMES = [f"{number:04}" for number in range(4 * limits.PAGE_JOBS)]


class Shelf:
    """A list that takes some time to read."""

    def __init__(self, read_s: float = 0.0) -> None:
        self.reads = 0
        self._clock = VirtualClock()
        self._read_s = read_s

    async def page(
        self,
        may_see: Callable[[str], bool],
        fits: Callable[[str], bool] = bool,
        *,
        after: str = "",
        limit: int = 3,
    ) -> tuple[list[str], str | None]:
        return await page_of(self._clock, self._read, may_see, fits, after=after, limit=limit)

    async def _read(self, after: str, most: int) -> list[tuple[str, str]]:
        self.reads += 1
        await self._clock.sleep(self._read_s)
        return [(name, name) for name in NAMES if name > after][:most]


@virtual
async def test_pages_follow_each_other_to_the_end() -> None:
    shelf, found, after = Shelf(), list[str](), ""
    while True:
        page, next_ = await shelf.page(lambda name: name.endswith("7"), after=after)
        found += page
        if next_ is None:
            break
        assert len(page) == 3
        assert next_ == page[-1]
        after = next_
    assert found == [name for name in NAMES if name.endswith("7")]


@virtual
async def test_a_page_begins_behind_something_that_may_be_seen() -> None:
    slow = Shelf(read_s=limits.PAGE_MS / 1_000)
    # It fits nowhere, and time is over; but there is something to go on behind.
    assert await slow.page(lambda name: name == "0007", lambda name: False) == ([], "0007")
    assert slow.reads == 1
    # Else it looks on for that, and what is hidden is not named.
    last = NAMES[-1]
    assert await slow.page(lambda name: name == last) == ([last], last)
    assert await slow.page(lambda name: False) == ([], None)


@virtual
async def test_a_page_takes_no_longer_than_a_request_may() -> None:
    shelf = Shelf(read_s=limits.PAGE_MS / 2_000)
    page, next_ = await shelf.page(lambda name: True, lambda name: name == "0001")
    assert (page, next_, shelf.reads) == (["0001"], NAMES[2 * limits.PAGE_JOBS - 1], 2)


@virtual
async def test_who_may_see_nothing_does_not_make_the_server_read_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads = len(NAMES) // limits.PAGE_JOBS
    monkeypatch.setattr(limits, "PAGE_READS_MAX", reads)
    shelf = Shelf()
    with pytest.raises(BadInput, match="none of the first 200 names is visible to you") as refused:
        await shelf.page(lambda name: False)
    assert refused.value.code == "bad_parameter"
    assert shelf.reads == reads
    assert await shelf.page(lambda name: name == NAMES[0]) == ([NAMES[0]], None)
