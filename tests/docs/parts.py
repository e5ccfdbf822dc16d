"""Blocks of pages that are no whole programs, and what is to be seen of them.

A part is known by words in it. `PRINTS` says what whole programs print; `PARTS` tries what is only
a piece, with the names that it takes from the text around it; `CANNOT` is what is not run, and why.
"""

import asyncio
import json
import logging
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp
import pytest

import onceward
from onceward.app import App
from onceward.client import Client
from onceward.clock import Clock
from onceward.ids import Ids
from onceward.store.transaction import Transaction
from onceward.webhooks.signing import headers, new_secret
from tests.client.served import Served
from tests.docs.migrating import (
    a_copy_of_timers,
    a_function_of_rq_that_forwards,
    a_task_of_celery_that_forwards,
    of_another_library,
)
from tests.docs.reader import Reader
from tests.needs import need, need_program
from tests.server_process import ROOT

Names = dict[str, Any]

# (page, words in the block): what it prints.
PRINTS: dict[tuple[str, str], list[str]] = {
    ("messages.md", "SM-77"): ["1"],
    ("locks.md", "invoice-run"): [
        "token 1",
        "invoice 1",
        "another holder has the lock on invoice-run; retry later",
        "['account-7', 'account-9']",
        "1 of 3",
    ],
    ("server.md", "parcels"): ["succeeded lamp shipped", "token 1"],
    ("timers.md", "remind-"): ["nightly active", "order-7 is waiting to be paid"],
    ("timers.md", "timers.move"): ["2033-05-18T07:00:00.000Z", "cancelled"],
    ("rooms.md", "shopping"): ["['milk']", "step 2", "[] ['milk']", "[] ['bread', 'milk']"],
}


def declare(text: str, **given: Any) -> Names:
    """The names of a piece, with those that it takes from elsewhere."""
    names: Names = {"onceward": onceward, "asyncio": asyncio, **given}
    exec(compile(text, "page", "exec"), names)
    return names


async def _ended(app: App, *sent: Any) -> list[Any]:
    return [await app.wait(receipt.id, 50) for receipt in sent]


async def a_handler_with_steps(text: str, reader: Reader) -> None:
    """What acts outside is done once each, with a day between."""
    app, done = App("memory://"), []

    class Outside:
        async def charge(self, *said: Any) -> str:
            done.append(said)
            return "R1"

        async def send(self, *said: Any) -> None:
            done.append(said)

    declare(text.replace("24 * 3600", "0.01"), app=app, bank=Outside(), mail=Outside())
    body = {"amount": 5, "email": "a@example.com", "number": "7"}
    async with app:
        receipt = await app.send("orders", body, key="7")
        [job] = await _ended(app, receipt)
        stored = await app.run(lambda tx: tx.get(("order", "7")))
    assert (job.state, stored) == ("succeeded", {"receipt": "R1"})
    assert done == [(5, receipt.id), ("a@example.com",)]


async def a_handler_that_holds_a_lock(text: str, reader: Reader) -> None:
    app = App("memory://")
    printed: list[tuple[str, int]] = []

    class Printer:
        async def print(self, words: str, id_: str) -> None:
            status = await app.locks.status("printer")
            assert status is not None
            printed.append((words, status.held))

    declare(text, app=app, printer=Printer())
    async with app:
        sent = [await app.send("labels", {"text": letter}, key=letter) for letter in "abc"]
        assert [job.state for job in await _ended(app, *sent)] == ["succeeded"] * 3
    assert sorted(printed) == [("a", 1), ("b", 1), ("c", 1)]


async def a_handler_with_a_rate_limit(text: str, reader: Reader) -> None:
    app, sent = App("memory://"), []

    class Provider:
        async def send(self, *said: Any) -> None:
            sent.append(said)

    declare(text.replace("rate=1,", "rate=50,"), app=app, provider=Provider())
    async with app:
        made = [await app.send("sms", {"to": "+49"}, key=str(number)) for number in range(8)]
        assert all(job.ended_ms for job in await _ended(app, *made))
    assert sorted(sent) == sorted(("+49", receipt.id) for receipt in made)


async def a_handler_that_changes_a_room(text: str, reader: Reader) -> None:
    app = App("memory://")
    declare(text, app=app)

    async def stock(tx: Transaction) -> None:
        await app.rooms.create(tx, "shop")
        await app.rooms.map_set(tx, "shop", "stock", "lamp", 1)

    async with app:
        await app.run(stock)
        sent = [await app.send("orders", {"item": "lamp"}, key=key) for key in "ab"]
        assert sorted(job.state for job in await _ended(app, *sent)) == ["failed", "succeeded"]
        assert await app.run(lambda tx: app.rooms.map(tx, "shop", "stock")) == {"lamp": 0}
        sold = await app.run(lambda tx: app.rooms.list(tx, "shop", "sold"))
        assert [item.value for item in sold or ()] == [{"item": "lamp"}]


def a_simulation(text: str, reader: Reader) -> None:
    """With few seeds; and a handler that pays without a step is found out."""
    from onceward.testing.simulation import simulate, simulate_many

    definition = text[: text.index("\nsimulate_many(")]
    careless = re.sub(r"job\.step\(\s*\"pay\", outside\.call, ", "outside.call(", definition)
    careless = careless.replace(", at_most_once=True", "")
    assert "job.step" not in careless
    logging.disable()  # of attempts that fail on purpose
    try:
        for seed in range(2):
            simulate(declare(definition)["Payments"], seed=seed)
        with pytest.raises(AssertionError, match="paid twice"):
            simulate_many(declare(careless)["Payments"], range(50))
    finally:
        logging.disable(logging.NOTSET)


async def a_match_without_a_table(text: str, reader: Reader) -> None:
    """With the rules that stand above it on the page."""
    from tests.docs.book import blocks, paths

    rules, *_ = blocks("games.md", paths()["games.md"].read_text())
    names = declare(rules.text)
    app = App("memory://")
    app.game(names["Nim"]())
    challenge = declare(text, app=app)["challenge"]
    async with app:
        seen = await app.run(challenge)
    assert seen.state == {"left": 10, "taker": "first"}


def rules_of_a_game(text: str, reader: Reader) -> None:
    """Saved, for the program behind it."""
    reader.save("rules.py", text)
    assert declare(text)["Nim"]().seats == ("first", "second")


def a_referee(text: str, reader: Reader) -> None:
    referee = declare(text)["Nim"]()
    assert all(callable(getattr(referee, name)) for name in ("begin", "move", "ended"))


async def a_handler_that_adds_to_a_list(text: str, reader: Reader) -> None:
    app = App("memory://")
    declare(text, app=app)
    async with app:
        await app.run(lambda tx: app.rooms.create(tx, "board.7"))
        [job] = await _ended(app, await app.send("orders", {"number": 7}, key="7"))
        items = await app.run(lambda tx: app.rooms.list(tx, "board.7", "notes"))
    assert (job.state, [item.value for item in items or ()]) == ("succeeded", ["order 7 came in"])


async def a_move_of_records(text: str, reader: Reader) -> None:
    """From one file to another, more than a page of them; and once more."""
    old, new = (f"sqlite:///{reader.folder}/{name}.db" for name in ("shop", "new"))
    here = text.replace("sqlite:///shop.db", old)
    names = declare(re.sub(r"postgresql://\w+@db/\w+", new, here), __name__="move")

    async def fill(tx: Transaction) -> None:
        for number in range(70):
            tx.put(("stock", f"{number:03}"), number)
        tx.put(("score", "ann"), 3)

    async with App(old) as app:
        await app.run(fill)
    for _ in range(2):
        await names["main"]()
    async with App(new) as app:
        found = await app.run(lambda tx: tx.scan("stock"))
        assert [row.value for row in found] == list(range(70))
        assert await app.run(lambda tx: tx.get(("score", "ann"))) == 3


async def a_place_in_line(text: str, reader: Reader) -> None:
    """At a table of a server, as whoever reads it would try it."""
    told: list[Any] = []
    indented = "".join(f"    {line}\n" for line in text.splitlines())
    piece = declare(
        f"async def piece(client):\n{indented}        return followed.place\n",
        print=lambda *words: told.append(words),
    )["piece"]
    async with Served() as served, Client(served.url) as client:
        await client.tables.create(id="corner")
        place = await piece(client)
    assert (place.role, place.marker) == ("seated", "X")


async def a_receiver_of_texts(text: str, reader: Reader) -> None:
    """Accepts form posts of Twilio once, also at the fallback URL, and rejects all others. The
    script for missed texts sends the others again."""
    validator = need("twilio.request_validator").RequestValidator("t" * 32)
    url = f"sqlite:///{reader.folder}/texts.db"
    with mock.patch.dict(os.environ, TWILIO_AUTH_TOKEN="t" * 32):
        names = declare(text.replace("sqlite:///texts.db", url))
    main, fallback = names["URLS"]
    sids = [f"SM{number:032x}" for number in range(3)]
    async with Served(names["app"]) as served, aiohttp.ClientSession(served.url) as session:

        async def post(fields: dict[str, str], signature: str) -> int:
            made = {"X-Twilio-Signature": signature}
            async with session.post("/hooks/twilio", data=fields, headers=made) as answer:
                assert answer.status != 200 or answer.content_type == "text/xml"
                return answer.status

        fields = {"MessageSid": sids[0], "From": "+1", "Body": "rock", "MediaUrl": ""}
        signed = validator.compute_signature(main, fields)
        assert await post(fields, signed) == 200
        failed = {**fields, "ErrorCode": "11200", "ErrorUrl": main}
        assert await post(failed, validator.compute_signature(fallback, failed)) == 200
        assert await post(failed, validator.compute_signature(main + "/", failed)) == 401
        assert await post({**fields, "Body": "paper"}, signed) == 401
        async with session.post("/hooks/twilio", json={}) as answer:
            assert answer.status == 415

        statuses = await asyncio.to_thread(_missed, sids, served.url, main)
        assert statuses == [200, 200, 200]
        async with Client(served.url) as client:
            page = await client.jobs.list(queue="texts")
            ended = [await client.jobs.wait(job.id) for job in page.jobs]
        assert sorted(job.result for job in ended) == ["+1: again 1", "+1: again 2", "+1: rock"]


def _missed(sids: list[str], url: str, public: str) -> list[int]:
    """Runs the script for missed texts, with Twilio's list and with the server in its place."""
    from tests.docs.book import blocks, paths

    need("twilio.rest")
    messages = [
        mock.Mock(sid=sid, from_="+1", to="+2", body=f"again {number}", direction="inbound")
        for number, sid in enumerate(sids)
    ]
    messages.append(mock.Mock(direction="outbound-api"))
    statuses: list[int] = []
    import requests

    def post(address: str, form: dict[str, str], **options: Any) -> Any:
        assert address == public
        made = requests.request("POST", f"{url}/hooks/twilio", data=form, **options)
        statuses.append(made.status_code)
        return made

    [script] = [
        one
        for one in blocks("guides/twilio.md", paths()["guides/twilio.md"].read_text())
        if one.file == "missed.py"
    ]
    environment = {"TWILIO_ACCOUNT_SID": "AC1", "TWILIO_AUTH_TOKEN": "t" * 32}
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch("twilio.rest.Client") as client,
        mock.patch("requests.post", post),
    ):
        client.return_value.messages.list.return_value = messages[::-1]
        declare(script.text, print=lambda *words: None)
    return statuses


def a_script_for_missed_texts(text: str, reader: Reader) -> None:
    """Runs together with the receiver."""
    assert ".messages.list(to=NUMBER, date_sent_after=since)" in text
    from inspect import signature

    known = signature(need("twilio.rest.api.v2010.account.message").MessageList.list).parameters
    assert {"to", "date_sent_after"} <= known.keys()


def _signed() -> tuple[str, dict[str, str]]:
    clock = Clock()
    secret = new_secret(Ids(clock.now_ms))
    return secret, headers([secret], "msg-1", clock.now_ms() // 1_000, b'{"n": 1}')


def a_receiver_in_python(text: str, reader: Reader) -> None:
    receive = declare(text)["receive"]
    secret, made = _signed()
    assert receive(secret, made, b'{"n": 1}') == {"n": 1}
    with pytest.raises(Exception, match="signature"):
        receive(secret, made, b'{"n": 1} ')


def a_receiver_in_node(text: str, reader: Reader) -> None:
    secret, made = _signed()
    old = {**made, "webhook-timestamp": "1"}
    text += f"""
const [secret, made, old] = {json.dumps([secret, made, old])};
const body = Buffer.from('{{"n": 1}}');
console.log(JSON.stringify(receive(secret, made, body)));
for (const wrong of [[secret, made, Buffer.from("{{}}")], [secret, old, body],
                     ["whsec_AAAA", made, body]]) {{
  try {{ receive(...wrong); console.log("taken"); }} catch (error) {{ console.log(error.message); }}
}}
"""
    reader.save("receive.mjs", text)
    done = subprocess.run(
        [need_program("node"), "receive.mjs"],
        cwd=reader.folder,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.stderr == ""
    refused = "not signed with this secret"
    assert done.stdout.splitlines() == ['{"n":1}', refused, "too old", refused]


def lines_of(*files: str) -> Callable[[str, Reader], None]:
    """What is quoted from a program that is tested."""

    def check(text: str, reader: Reader) -> None:
        from tests.quotes import statements

        paths = [path for file in files for path in ROOT.glob(file)]
        code = {line for path in paths for line in statements(path.read_text())}
        assert [line for line in statements(text) if line not in code] == []

    return check


# (page, words in the block): how it is tried.
PARTS: dict[tuple[str, str], Callable[[str, Reader], Any]] = {
    ("messages.md", "bank.charge"): a_handler_with_steps,
    ("messages.md", "class Payments"): a_simulation,
    ("locks.md", "printer.print"): a_handler_that_holds_a_lock,
    ("rate-limits.md", "provider.send"): a_handler_with_a_rate_limit,
    ("rooms.md", "rooms.map_add"): a_handler_that_changes_a_room,
    ("games.md", "class Nim(Rules)"): rules_of_a_game,
    ("games.md", "async def challenge"): a_match_without_a_table,
    ("seats.md", "class Nim:"): a_referee,
    ("seats.md", "tables.follow"): a_place_in_line,
    ("timers.md", "def receive(secret: str"): a_receiver_in_python,
    ("timers.md", "export function receive"): a_receiver_in_node,
    ("server.md", "lifespan(web"): lines_of("examples/mounted.py"),
    ("guides/twilio.md", "x-twilio-signature"): a_receiver_of_texts,
    ("guides/twilio.md", "messages.list("): a_script_for_missed_texts,
    ("guides/pytest.md", "onceward_app = shop:app"): lambda text, reader: reader.save(
        "pytest.ini", text
    ),
    ("guides/react.md", "list_push"): a_handler_that_adds_to_a_list,
    ("guides/postgresql.md", "async def copy"): a_move_of_records,
    # tests/docs/test_plain_sql.py runs all of it on both databases.
    ("guides/plain-sql.md", ""): lambda text, reader: None,
    ("guides/from-celery.md", 'name="tasks.pay"'): a_task_of_celery_that_forwards,
    ("guides/from-celery.md", "from celery"): of_another_library,
    ("guides/from-rq.md", "save_meta"): a_function_of_rq_that_forwards,
    ("guides/from-rq.md", "from rq"): of_another_library,
    ("guides/from-apscheduler.md", "func_ref"): a_copy_of_timers,
    ("guides/from-apscheduler.md", "from apscheduler"): of_another_library,
}


# (page or *, the beginning of a command): why it is not run. What is ours is at least understood.
CANNOT: dict[tuple[str, str], str] = {
    ("*", "pip install"): "needs the package index; `make` installs the same from lock files",
    (
        "guides/flask.md",
        "flask --app shop onceward",
    ): "tests/integrations/test_flask.py runs it as a process",
    ("*", "make "): "a target of the repository, which tests of its own run",
    ("*", "npm install"): "needs the package index; the types are checked against the checkout",
    ("*", "python3 -m venv"): "makes the environment that the tests run in",
    ("guides/deployment.md", "sudo "): "changes the machine; tests/docs/test_deployment.py",
    (
        "guides/postgresql.md",
        "*",
    ): "needs a PostgreSQL at another machine; tests/schedule have nodes",
    ("console.md", "onceward serve"): "the same as in server.md, word for word",
    ("demo.md", "*"): "tests/apps/demo run it, and kill and press what there is to press",
    ("credit.md", "*"): "tests/apps/credit run the same as processes, with a storm of minutes",
    ("rps.md", "*"): "needs a reply in doubt; tests/apps/rps make some",
}


def cannot(page: str, command: str) -> str | None:
    """Why a command is not run."""
    for (where, beginning), why in CANNOT.items():
        if where in (page, "*") and (beginning == "*" or command.startswith(beginning)):
            return why
    return None


def find(table: dict[tuple[str, str], Any], page: str, text: str) -> Any:
    """What a table has for a block."""
    for (where, words), found in table.items():
        if where == page and words in text:
            return found
    return None


def quoted(path: Path) -> bool:
    """Whether a page is one that quotes its own application, as tests of that check."""
    return "apps" in path.parts
