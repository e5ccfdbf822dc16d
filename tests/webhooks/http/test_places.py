import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.webhooks.http.places import Places


async def turn() -> None:
    await asyncio.sleep(0)


async def test_who_waits_gets_a_place_in_the_order_of_coming() -> None:
    places = Places(1)
    await places.enter()
    entered: list[int] = []

    async def come(number: int) -> None:
        await places.enter()
        entered.append(number)

    waiting = [asyncio.create_task(come(number)) for number in range(3)]
    await turn()
    assert entered == []
    for count in (1, 2, 3):
        places.leave()
        assert places.free == 0, "nobody who comes now is before those in line"
        await turn()
        assert entered == list(range(count))
    await asyncio.gather(*waiting)
    places.leave()
    assert places.free == 1


async def test_who_gives_up_in_line_is_passed_over() -> None:
    places = Places(1)
    await places.enter()
    first, second = (asyncio.create_task(places.enter()) for _ in range(2))
    await turn()
    first.cancel()
    await turn()
    places.leave()
    await second
    assert places.free == 0


async def test_who_gives_up_when_it_is_just_their_turn_hands_the_place_on() -> None:
    places = Places(1)
    await places.enter()
    first, second = (asyncio.create_task(places.enter()) for _ in range(2))
    await turn()
    places.leave()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    places.leave()
    assert places.free == 1


actions = st.sampled_from(["come", "leave", "cancel", "turn"])


@given(count=st.integers(1, 3), steps=st.lists(st.tuples(actions, st.integers(0, 9))))
def test_no_place_is_lost_or_taken_twice(count: int, steps: list[tuple[str, int]]) -> None:
    async def main() -> None:
        places = Places(count)
        inside = 0
        waiting: list[asyncio.Task[None]] = []

        async def come() -> None:
            nonlocal inside
            await places.enter()
            inside += 1

        for step, at in steps:
            if step == "come":
                waiting.append(asyncio.create_task(come()))
            elif step == "leave" and inside:
                inside -= 1
                places.leave()
            elif step == "cancel" and waiting:
                waiting[at % len(waiting)].cancel()
            elif step == "turn":
                await turn()
            assert inside + places.free <= count
        while inside or any(not task.done() for task in waiting):
            await turn()
            for _ in range(inside):
                inside -= 1
                places.leave()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert places.free == count

    asyncio.run(main())
