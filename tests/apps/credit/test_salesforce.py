"""The example of the other end knows results by their ids, and finds out who repeats himself."""

from apps.credit.salesforce import Salesforce
from onceward.web.site import Site
from tests.web.asgi import Answer, AsgiCaller, Caller


def salesforce(*chances: float, failing: float = 0.0) -> tuple[Salesforce, Caller]:
    left = list(chances or (0.5,))
    made = Salesforce(lambda: left.pop(0) if len(left) > 1 else left[0], failing=failing)
    return made, AsgiCaller(web=Site(made.routes))


async def tell(caller: Caller, id_: str = "j1", kind: str = "decision", value: int = 1) -> Answer:
    result = {"opportunity": "006", "kind": kind, "pull": "p1", "value": value}
    headers = [("Idempotency-Key", id_)] if id_ else []
    return await caller("POST", "/salesforce/results", result, headers=headers)


async def test_results_are_known_by_their_ids() -> None:
    made, caller = salesforce()
    for _ in range(2):
        for number, kind in enumerate(("decision", "tradelines", "verification")):
            assert (await tell(caller, f"j{number}", kind)).status == 201
    told = await caller.ok("GET", "/salesforce")
    assert (told["results"], told["repeated"], told["applications"]) == (3, 3, 1)
    assert (made.stats.different, made.stats.twice) == (0, 0)


async def test_what_should_never_be_is_noticed() -> None:
    made, caller = salesforce()
    await tell(caller, "j1")
    await tell(caller, "j1", value=2)
    await tell(caller, "j2")
    assert (made.stats.different, made.stats.twice) == (1, 1)
    assert (await tell(caller, "")).status == 400


async def test_it_fails_at_times_before_and_after() -> None:
    made, caller = salesforce(0.01, 0.09, 0.5, failing=0.1)
    assert [(await tell(caller)).status for _ in range(3)] == [503, 500, 201]
    assert (made.stats.refused, made.stats.repeated, made.stats.results) == (1, 1, 1)
