"""Keys that are made while a server runs count at once, and on other nodes soon."""

from typing import Any

import pytest

from onceward import limits
from onceward.errors import BadInput
from onceward.web.keyring import Keyring
from onceward.webhooks import suspensions
from tests.rooms.people import Person
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, keyed, serving
from tests.work.apps import Apps


@virtual
async def test_a_key_counts_from_its_making_to_its_removal_on_all_nodes() -> None:
    apps = Apps(shared=True)
    async with (
        serving(apps.make(), keyed(ann="all")[0]) as caller,
        serving(apps.make(), keyed(ann="all")[0]) as other,
    ):
        ann = Caller(caller.server, "ow_ann")
        asked = {"name": "billing", "scopes": ["send:invoices"]}
        made = await ann.ok("POST", "/v1/keys", asked)
        assert made["key"].startswith("ow_")
        billing = Caller(caller.server, made["key"])
        message = ("POST", "/v1/inbox/invoices", {"body": 1, "key": "k"})
        assert (await billing(*message)).status == 202
        assert (await billing("POST", "/v1/inbox/mail", message[2])).verdict == (403, "not_allowed")
        elsewhere = Caller(other.server, made["key"])
        await apps.sleep(limits.KEYS_S + 1)
        assert (await elsewhere(*message)).status == 200
        [listed] = (await ann.ok("GET", "/v1/keys"))["keys"]
        assert {**listed, "key": made["key"]} == made
        assert listed["by"] == "key:ann"
        assert made["key"] not in str(apps.records)  # only its digest is kept
        await ann.ok("DELETE", f"/v1/keys/{made['id']}")
        assert (await billing(*message)).verdict == (401, "no_credentials")
        await apps.sleep(limits.KEYS_S + 1)
        assert (await elsewhere(*message)).verdict == (401, "no_credentials")
        assert (await ann("DELETE", f"/v1/keys/{made['id']}")).verdict == (404, "no_such_key")


@virtual
async def test_connections_end_with_the_key_that_they_came_with_on_all_nodes() -> None:
    apps = Apps(shared=True)
    async with (
        serving(apps.make(), keyed(ann="all")[0]) as caller,
        serving(apps.make(), keyed(ann="all")[0]) as other,
    ):
        ann = Caller(caller.server, "ow_ann")
        asked = {"name": "bob", "scopes": ["read:*"]}
        made, kept = [await ann.ok("POST", "/v1/keys", asked) for _ in range(2)]
        await apps.sleep(limits.KEYS_S + 1)
        here, there, stays, changed = (
            Person(node.app.hub, None) for node in (caller, other, caller, caller)
        )
        for person in (here, there, changed):
            person.ask("hello", token=made["key"])
            await person.next("welcome")
        stays.ask("hello", token=kept["key"])
        changed.ask("token", token=kept["key"])
        await changed.next("welcome")
        await ann.ok("DELETE", f"/v1/keys/{made['id']}")
        assert here.reason == "no_credentials"
        await apps.sleep(limits.KEYS_S + 1)
        assert there.reason == "no_credentials"
        # Another key of the same caller is another one.
        assert (stays.code, changed.code) == (None, None)


@virtual
async def test_storage_in_trouble_takes_no_key_away() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make(), keyed(ann="all")[0]) as caller:
        ann = Caller(caller.server, "ow_ann")
        made = await ann.ok("POST", "/v1/keys", {"name": "bob", "scopes": ["all"]})
        apps.engines[0].cut_off = True
        await apps.sleep(3 * limits.KEYS_S)
        assert (await Caller(caller.server, made["key"])("GET", "/v1/activity")).status == 200


@virtual
async def test_what_cannot_be_a_key_is_refused() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        keyring = Keyring(app.store)
        for name, scopes in (("", ("all",)), ("a", ()), ("a", ("send",)), ("x" * 300, ("all",))):
            with pytest.raises(BadInput):
                await keyring.make(name, scopes, "ann")
        keyring.keys = dict.fromkeys(map(str, range(limits.KEYS_MAX)))  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="already"):
            await keyring.make("a", ("all",), "ann")


@virtual
async def test_a_key_made_while_the_last_one_is_removed_leaves_nobody_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    suspend = suspensions.suspend
    made = []
    async with serving(auth=keyed(op="all")[0]) as caller:
        ring = caller.server.keyring
        _, digest = await ring.make("billing", ("send:q",), "key:op")

        async def meanwhile(tx: Any, whose: str, by: str) -> None:
            if not made:
                made.append(await ring.make("billing", ("send:q",), "key:op"))
            await suspend(tx, whose, by)

        monkeypatch.setattr(suspensions, "suspend", meanwhile)
        assert await ring.remove(digest, "key:op")
        assert len(made) == 1
        found = await Caller(caller.server, "ow_op").ok("GET", "/v1/callers/suspended")
        assert found["callers"] == []
