"""Simulation of applications without a scenario."""

import asyncio
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

import aiohttp
import httpx
import pytest
import requests

import onceward
from onceward.app import App
from onceward.cli import main
from onceward.errors import BadInput
from onceward.testing.proof import (
    Difference,
    Message,
    Proof,
    SimulationFailed,
    prove,
    read_jobs,
    replay,
    search,
    write_test,
)
from onceward.testing.proof.messages import make_body
from onceward.testing.proof.search import orders
from onceward.testing.proof.services import Services, intercepted
from onceward.testing.proof.timeline import LINES_MAX
from tests.testing.proof import corpus

pytestmark = pytest.mark.simulate
SOAK = os.environ.get("ONCEWARD_SOAK")
# The others are in `make soak-proof`.
QUICK = ("call outside a step", "lost update")


@pytest.mark.parametrize("name", sorted(set(corpus.PAIRS) - corpus.MISSED) if SOAK else QUICK)
def test_a_mistake_is_found_and_its_repaired_twin_is_not(name):
    wrong, right = corpus.PAIRS[name]
    with pytest.raises(SimulationFailed) as found:
        prove(Proof(wrong), range(10_000 if SOAK else 60), seconds=60, shrunk=bool(SOAK))
    assert found.value.kind != "vacuous"
    totals = prove(Proof(right), range(60 if SOAK else 3))
    assert totals.attempts
    assert totals.faults


def test_a_failing_run_is_shrunk_to_a_timeline_that_a_test_repeats(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "_SHRINKS_MAX", 20)
    (tmp_path / "bank.py").write_text(
        "from tests.testing.proof.corpus import call_outside_a_step\napp = call_outside_a_step()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    proof = Proof("bank:app")
    with pytest.raises(Difference) as found:
        prove(proof, range(60))
    text = str(found.value)
    events = [line for line in text.splitlines() if line[:12].strip()[:1].isdigit()]
    assert 2 <= len(events) <= LINES_MAX
    assert "POST https://bank.example/pay" in text
    assert f"replay: onceward simulate bank:app --seed {found.value.seed}" in text
    write_test(proof, found.value, str(tmp_path / "test_bank.py"))
    names: dict = {}
    exec((tmp_path / "test_bank.py").read_text(), names)
    with pytest.raises(Difference, match="took effect"):
        names["test_the_outcome_equals_one_without_faults"]()
    with pytest.raises(BadInput, match="cannot write"):
        write_test(proof, found.value, str(tmp_path / "test_bank.py"))


def test_the_application_is_unchanged_after_a_simulation():
    app = corpus.update_in_one_transaction()
    prove(Proof(app), range(2))
    assert type(app) is App

    async def use():
        async with app:
            receipt = await app.send("work", {"player": "ann"})
            return (await app.wait(receipt.id)).state

    assert asyncio.run(use()) == "succeeded"


def test_messages_are_made_from_the_type_of_the_body():
    @dataclass
    class Order:
        item: Literal["lamp", "sofa"]
        count: int
        note: str | None
        parts: list[dict[str, int]]

    app, seen = App("memory://"), []

    async def order(job):
        seen.append(job.body)
        assert isinstance(job.body, Order)

    order.__annotations__ = {"job": onceward.Job[Order], "return": None}
    app.handler("orders")(order)
    prove(Proof(app), range(2))
    assert {body.item for body in seen} <= {"lamp", "sofa"}

    class Impossible:
        pass

    converter = app._declared.handlers["orders"].body
    with pytest.raises(BadInput, match="cannot make a body"):
        make_body(Impossible, converter, Random(0))


def test_plain_handlers_and_calls_of_requests_take_part():
    app = App("memory://")

    @app.handler("mails", examples=[{"to": "ann"}])
    def mail(job):
        requests.post("https://mail.example/send", json=job.body, timeout=5)

    with pytest.raises(Difference, match=r"POST https://mail.example/send .* took effect"):
        prove(Proof(app), range(100), shrunk=False)


async def test_calls_of_all_libraries_are_intercepted():
    get, post, fetch = requests.get, requests.post, httpx.get
    services = Services(Random(0))
    with intercepted(lambda: services):
        async with httpx.AsyncClient() as http:
            assert (await http.get("https://a.example/x")).status_code == 404
            await http.put("https://a.example/x", json={"n": 1})
        assert fetch("https://a.example/x").json() == {"n": 1}
        assert get("https://a.example/x", timeout=1).json() == {"n": 1}
        async with aiohttp.ClientSession() as session:
            async with session.get("https://a.example/x") as response:
                assert await response.json() == {"n": 1}
            async with session.post(
                "https://a.example/p", json={"n": 2}, headers={"Idempotency-Key": "k"}
            ) as response:
                first = await response.json()
        headers = {"Idempotency-Key": "k"}
        again = post("https://a.example/p", json={"n": 2}, headers=headers, timeout=1)
        assert again.json() == first
        post("https://a.example/p", json={"n": 3}, headers=headers, timeout=1)
    assert [one.body for one in services.posted] == [{"n": 2}]
    assert "https://a.example/p" in services.changed


def test_differences_can_be_ignored_and_records_prepared():
    app = App("memory://")

    @app.handler("work", examples=[1, 2])
    async def work(job):
        assert await job.tx.get(("settings", "rate")) == 5
        job.tx.put(("log", job.id), job.attempt)

    async def setup(tx):
        tx.put(("settings", "rate"), 5)

    prove(Proof(app, setup=setup, ignore=["record (log, "]), range(12))
    with pytest.raises(Difference, match="log"):
        prove(Proof(app, setup=setup), range(60), shrunk=False)


def test_timers_fire_before_the_outcome_is_taken():
    app = App("memory://")

    @app.handler("work", examples=[1])
    async def work(job):
        await app.timers.set("later", queue="late", body=job.id, delay_s=7_200, tx=job.tx)
        await app.timers.set("in a year", queue="late", delay_s=365 * 86_400, tx=job.tx)

    @app.handler("late")
    async def late(job):
        job.tx.put(("late", job.body), job.id != "")

    proof = Proof(app)
    with proof.ready() as make:
        for seed in range(3):
            case = proof.case(seed)
            assert proof.look(make, case)[1] == ""
            [allowed] = proof._allowed[search.key_of(case)][:1]
            states = [line.rpartition(" is ")[2] for line in allowed if line.startswith("timer ")]
            assert sorted(states) == ["active", "fired"]


def waiting_app(timeout_s=None):
    app = App("memory://")

    @app.handler("work", examples=[1, 2, 3], attempts_max=2)
    async def work(job):
        try:
            answer = await job.wait_for("approval", timeout_s=timeout_s)
        except TimeoutError:
            answer = "none"
        job.tx.put(("answer", job.id), answer)

    return app


@pytest.mark.parametrize("timeout_s", [None, 20])
def test_jobs_get_the_events_that_they_wait_for(timeout_s):
    proof = Proof(waiting_app(timeout_s), events={"approval": ["yes", "no"]})
    senders = (Message("work", 1),), (Message("work", 2),)
    with proof.ready() as make:
        for seed in range(12):
            run, why = proof.look(make, search.Case(seed, senders))
            assert why == ""
            assert run.attempts >= 4
    [[allowed, *_]] = proof._allowed.values()
    answers = [line.rpartition(" is ")[2] for line in allowed if line.startswith("record (answer")]
    assert sorted(answers) == ['"no"', '"yes"']


def test_an_event_that_nobody_sends_is_named(tmp_path, monkeypatch, capsys):
    with pytest.raises(SimulationFailed, match="'approval', which nobody sends"):
        prove(Proof(waiting_app()), range(1))
    (tmp_path / "gate.py").write_text(
        "from tests.testing.proof.test_proof import waiting_app\napp = waiting_app()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["simulate", "gate:app", "--seeds", "2"]) == 1
    assert "Name a value, as in `--event approval=true`" in capsys.readouterr().out
    assert main(["simulate", "gate:app", "--seeds", "2", "--event", "approval=true"]) == 0
    for given in ("approval", "=1", "approval=yes"):
        assert main(["simulate", "gate:app", "--event", given]) > 1
        assert "--event is" in capsys.readouterr().err
    for wrong in ({"approval": []}, {"approval": "yes"}, {"": [1]}):
        with pytest.raises(BadInput, match="event"):
            Proof(waiting_app(), events=wrong)


def test_a_written_test_has_the_events(tmp_path):
    proof = Proof(waiting_app(), events={"approval": [True]})
    proof.name = "gate:app"
    found = Difference("text", proof.case(1))
    write_test(proof, found, str(tmp_path / "test_gate.py"))
    assert "events={'approval': [True]})" in (tmp_path / "test_gate.py").read_text()


def test_a_simulation_without_use_fails_as_vacuous():
    app = App("memory://")

    @app.handler("work", examples=[1])
    async def broken(job):
        raise RuntimeError("always")

    with pytest.raises(SimulationFailed, match=r"queue 'work' never succeed.*always") as found:
        prove(Proof(app), range(2))
    assert found.value.kind == "vacuous"
    with pytest.raises(SimulationFailed, match="no handler ran"):
        prove(Proof(app), [])


def test_senders_keep_their_order_and_others_have_all_orders():
    one, two, other = (Message("q", body) for body in (1, 2, 3))
    found = {order.turns for order in orders([(one, two), (other,)]) if not order.settled}
    assert found == {(0, 0, 1), (0, 1, 0), (1, 0, 0)}


def test_invalid_uses_are_reported(tmp_path):
    app = App("memory://")

    @app.handler("work")
    async def work(job):
        pass

    with pytest.raises(BadInput, match=r"nothing to send: the handlers \(work\) have neither"):
        prove(Proof(app), range(1))
    with pytest.raises(BadInput, match="the application has no handlers"):
        prove(Proof(App("memory://")), range(1))
    with pytest.raises(BadInput, match="a seed must be a whole number, not 'x'"):
        prove(Proof(app), ["x"])
    with pytest.raises(BadInput, match="cannot load the application 'nowhere:app'"):
        Proof("nowhere:app")
    (tmp_path / "jobs").write_text('{"queue": "work"}')
    with pytest.raises(BadInput, match="cannot read jobs from"):
        read_jobs(str(tmp_path / "jobs"))


def test_recorded_jobs_are_replayed_with_their_order_keys(tmp_path):
    (tmp_path / "jobs").write_text('{"queue": "work", "body": {"n": 1}, "order_key": "a"}\n' * 2)
    messages = read_jobs(str(tmp_path / "jobs"))
    assert messages == [Message("work", {"n": 1}, {"order_key": "a"})] * 2
    prove(Proof(corpus.counted_in_the_transaction_of_the_job, messages=messages), range(3))


def test_the_command_reports_a_failing_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(search, "_SHRINKS_MAX", 10)
    (tmp_path / "game.py").write_text(
        "from tests.testing.proof.corpus import lost_update, update_in_one_transaction\n"
        "app = lost_update\ngood = update_in_one_transaction()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", "game:app", "--seeds", "60", "--write-test", "test_game.py"]) == 1
    printed = capsys.readouterr().out
    assert "no run without faults ends like this" in printed
    assert "wrote test_game.py" in printed
    assert main(["simulate", "game:good", "--seed", "3"]) == 0
    assert "1 runs with" in capsys.readouterr().out
    assert main(["simulate", "nowhere"]) > 1
    assert "nowhere" in capsys.readouterr().err


def test_two_processes_with_different_hash_seeds_find_the_same():
    code = (
        "from tests.testing.proof import corpus\n"
        "from onceward.testing.proof import *\n"
        "proof = Proof(corpus.lost_update)\n"
        "with proof.ready() as make:\n"
        "    for seed in range(2):\n"
        "        run, why = proof.look(make, proof.case(seed))\n"
        "        print(why, run.events)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**environment, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1] != ""


def test_replays_take_what_a_test_has():
    senders = [[("work", {"player": "ann"}, {})], [("work", {"player": "ann"}, {})]]
    replay(corpus.update_in_one_transaction, seed=1, senders=senders, faults=[])
