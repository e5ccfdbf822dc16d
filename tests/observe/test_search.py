"""All jobs can be looked through from the newest on, however they are spread."""

from onceward.app import App
from onceward.observe import search as roll
from onceward.observe.search import Line, Page
from onceward.store.transaction import Transaction
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

HOUR_NS = 3_600 * 10**9


async def look(app: App, before: str | None = None, most: int = 10, **wanted: str) -> Page:
    def fits(id_: str, line: Line) -> bool:
        return all(getattr(line, name) == value for name, value in wanted.items())

    until_ns = app.store.clock.elapsed_ns() + HOUR_NS
    slots = app.node.schedule.slots
    return await roll.newest(app.store, slots, fits, before=before, most=most, until_ns=until_ns)


@virtual
async def test_jobs_come_from_the_newest_to_the_oldest_page_by_page() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        sent = []
        for number in range(137):
            sent.append((await app.send(f"q{number % 3}", number)).id)
            if number % 10 == 0:
                await apps.sleep(0.001)
        [claim] = await app.claim("q0", "w", lease_s=60)
        await app.extend(claim.id, claim.token, 120)  # another record beside the job's
        found: list[str] = []
        before = None
        while True:
            page = await look(app, before)
            found += [id_ for id_, _ in page.found]
            if page.next is None:
                break
            assert len(page.found) == 10
            before = page.next
        assert found == sorted(sent, reverse=True)


@virtual
async def test_only_those_that_fit_are_found_and_all_of_them() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        wanted = []
        for number in range(200):
            id_ = (await app.send("rare" if number % 50 == 0 else "often", number)).id
            if number % 50 == 0:
                wanted.append(id_)
        page = await look(app, queue="rare")
        assert [id_ for id_, _ in page.found] == wanted[::-1]
        assert (page.scanned, page.next) == (200, None)
        assert (await look(app, queue="never")).found == []
        assert [line.queue for _, line in (await look(app, most=3, queue="often")).found] == [
            "often"
        ] * 3


@virtual
async def test_when_the_time_is_over_it_says_where_to_go_on() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        for number in range(500):
            await app.send("q", number)
        now_ns = app.store.clock.elapsed_ns()
        scanned, before = 0, None
        while True:
            page = await roll.newest(
                app.store,
                app.node.schedule.slots,
                lambda id_, line: False,
                before=before,
                until_ns=now_ns,
            )
            scanned += page.scanned
            if page.next is None:
                break
            assert page.scanned
            before = page.next
        assert scanned == 500


@virtual
async def test_a_damaged_record_is_passed_over() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        id_ = (await app.send("q", 1)).id
        await app.store.run(damage)
        page = await look(app)
        assert [found for found, _ in page.found] == [id_]
        assert page.scanned == 2


async def damage(tx: Transaction) -> None:
    tx.put(("job#0001", "0" * 26 + "001#job"), "not a job")
