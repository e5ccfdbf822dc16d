"""The contract, on a real server: as it is, over a network that cuts, and as it crashes."""

from random import Random

import pytest

from onceward.engine.postgres import PostgresEngine
from onceward.testing.certify import (
    CHECKS,
    CheckFunction,
    check_name,
    commits,
    expiry,
    lifetimes,
    model,
    races,
    run_check,
    watches,
)
from onceward.testing.postgres import PostgresServer
from onceward.testing.proxy import Cut, Proxy, chance
from tests.engine.postgres.insisting import MARKERS, InsistingEngine

pytestmark = pytest.mark.no_cover

CRASHES = [
    lifetimes.an_answered_commit_survives_a_crash,
    lifetimes.what_survives_has_its_past,
    lifetimes.a_checked_read_survives_a_crash,
    lifetimes.versions_are_not_reused_after_a_crash,
]
# Over a network that cuts commits, what matters is what becomes of commits.
COMMITS = [
    *(*commits.CHECKS, *races.CHECKS, *expiry.CHECKS),
    *(*watches.CHECKS, *lifetimes.CHECKS, *model.CHECKS),
]
CUTS = dict.fromkeys(
    [Cut.REQUEST, Cut.HALF_REQUEST, Cut.UNDER_WAY, Cut.ANSWER, Cut.HALF_ANSWER, Cut.LATE], 0.03
)


@pytest.mark.parametrize("check", [c for c in CHECKS if c not in CRASHES], ids=check_name)
async def test_it_keeps_the_contract(check: CheckFunction, url: str) -> None:
    await run_check(
        check,
        lambda: PostgresEngine(url),
        reopen=lambda _: PostgresEngine(url),
        second=lambda _: PostgresEngine(url),
    )


@pytest.mark.parametrize("check", [c for c in COMMITS if c not in CRASHES], ids=check_name)
async def test_it_keeps_the_contract_over_a_network_that_cuts(
    check: CheckFunction, server: PostgresServer, schema: str
) -> None:
    plan = chance(Random(check_name(check)), CUTS)
    async with Proxy(server.port, marker=MARKERS, plan=plan) as proxy:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?schema={schema}"
        await run_check(
            check,
            lambda: InsistingEngine(url),
            reopen=lambda _: InsistingEngine(url),
            second=lambda _: InsistingEngine(url),
        )


@pytest.mark.parametrize("check", CRASHES, ids=check_name)
async def test_it_keeps_the_contract_when_the_server_crashes(
    check: CheckFunction, crashing: PostgresServer, schema: str
) -> None:
    url = f"{crashing.url}?schema={schema}"

    async def crash(engine: PostgresEngine) -> PostgresEngine:
        crashing.stop("immediate")
        await engine.close()  # there is nothing that it could still write
        crashing.start()
        return PostgresEngine(url)

    await run_check(check, lambda: PostgresEngine(url), crash=crash)
