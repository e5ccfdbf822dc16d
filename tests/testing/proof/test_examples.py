"""The handlers of the examples and applications have outcomes that runs without faults have. It is
found without judges of their own. The board and tic-tac-toe have no handlers."""

import logging
import os
from collections import Counter
from dataclasses import replace
from random import Random

import httpx
import msgspec
import pytest

from apps.credit.credit import Credit
from apps.credit.decision import Decision
from apps.credit.settings import Settings
from apps.credit.soap import Notification
from apps.demo.settings import ORDERS
from apps.demo.shop import open_shop
from apps.rps.game import TEXTS, Game, Text
from apps.rps.provider import Provider
from apps.rps.records import Line
from examples.handlers import PAIRS, PaymentInAStep
from onceward.app import App
from onceward.testing.proof import Difference, Message, Proof, prove

pytestmark = pytest.mark.simulate
SOAK = os.environ.get("ONCEWARD_SOAK")
URL = "https://outside.example"


class OverHttp:
    """The outside world of the examples, as HTTP services."""

    async def call(self, what, id_, value=None):
        return await self._post(what, {"id": id_, "value": value}, {})

    async def call_once(self, what, id_, value=None):
        return await self._post(what, {"id": id_, "value": value}, {"Idempotency-Key": id_})

    async def get(self, name, default=None):
        async with httpx.AsyncClient() as http:
            found = await http.get(f"{URL}/{name}")
        return found.json() if found.status_code == 200 else default

    async def set(self, name, value):
        async with httpx.AsyncClient() as http:
            await http.put(f"{URL}/{name}", json=value)

    async def _post(self, what, body, headers):
        async with httpx.AsyncClient() as http:
            sent = await http.post(f"{URL}/{what}", json=body, headers=headers)
        return sent.json()["id"]


def proof_of(example):
    app = App("memory://")
    example().declare(app, OverHttp())
    random = Random(7)
    return Proof(app, messages=[Message(*example().message(random)) for _ in range(3)])


@pytest.mark.parametrize(("wrong", "right"), PAIRS)
def test_the_mistakes_of_the_examples_are_found_without_their_judges(wrong, right):
    logging.disable(logging.NOTSET)
    with pytest.raises(Difference):
        prove(proof_of(wrong), range(200), shrunk=False)
    prove(proof_of(right), range(60 if SOAK else 4))


def test_records_may_hold_the_result_that_an_operator_has_entered():
    # The operator enters the response of the bank, of which the step returns the id only.
    proof = proof_of(PaymentInAStep)
    with proof.ready() as make:
        run, why = proof.look(make, proof.case(5))
        assert run.settled
        assert not why
        entered = 'record (receipt, message 1) is "<result of the operator>"'
        assert entered in run.outcome
        lost = Counter(run.outcome) - Counter([entered])
        assert proof.judge(make, proof.case(5), replace(run, outcome=lost))
        other = lost + Counter(['record (other, message 1) is "<result of the operator>"'])
        assert proof.judge(make, proof.case(5), replace(run, outcome=other))


def test_the_shop_of_the_demo_sends_each_parcel_once():
    app = App("memory://")
    open_shop(app)
    orders = [Message(ORDERS, {"order": str(number)}) for number in range(3)]
    prove(Proof(app, messages=orders), range(60 if SOAK else 3))


class Texts(Provider):
    """Delivers replies over HTTP, with idempotency keys."""

    name = "http"

    async def send(self, id_, reply):
        async with httpx.AsyncClient() as http:
            headers = {"Idempotency-Key": id_}
            await http.post(f"{URL}/texts", json=msgspec.to_builtins(reply), headers=headers)
        return {"sid": "sent"}


def test_games_by_text_have_outcomes_of_runs_without_faults():
    def game():
        app = App("memory://")
        Game(app, [Texts()])
        return app

    def text(phone, words):
        body = msgspec.to_builtins(Text(Line(phone, "http"), words))
        return Message(TEXTS, body, {"order_key": phone, "caller": "http"})

    ann, bob = "+491701234567", "+491707654321"
    messages = [text(ann, "rock"), text(bob, "paper"), (text(ann, "help"), text(ann, "rock"))]
    prove(Proof(game, messages=messages), range(60 if SOAK else 3))


class CreditOverHttp:
    """The bureau and Salesforce, which know idempotency keys."""

    async def pull(self, url, reference, fields, *, key, timeout_s, authorization=""):
        async with httpx.AsyncClient() as http:
            body = {"reference": reference, "fields": fields}
            await http.post(url, json=body, headers={"Idempotency-Key": key})
        verified = {"name": True, "address": True}
        return {"number": reference, "score": 700, "tradelines": [], "verification": verified}

    async def deliver(self, url, id_, result, *, authorization=""):
        async with httpx.AsyncClient() as http:
            await http.post(url, json=result, headers={"Idempotency-Key": id_})
        return "200"


def test_applications_for_credit_are_pulled_and_reported_once():
    organisation = "00D000000000001EAA"
    settings = Settings(
        organisations=(organisation,),
        bureau=f"{URL}/bureau",
        salesforce=f"{URL}/salesforce",
        secret="s" * 20,
        bureau_keys=True,
    )

    def intake():
        app = App("memory://")
        credit = Credit(settings, app, CreditOverHttp(), lambda *_: Decision("approved", []))

        @app.handler("envelopes")
        async def take(job):
            await credit._accept(job.tx, organisation, msgspec.convert(job.body, Notification))

        return app

    came = [Notification(f"n{n}", {"Id": f"p{n % 2}", "Amount": "1"}) for n in range(3)]
    messages = [Message("envelopes", msgspec.to_builtins(one)) for one in came]
    prove(Proof(intake, messages=messages), range(60 if SOAK else 3))
