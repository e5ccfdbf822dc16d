"""The handlers of `examples/handlers.py` and of the demo are judged without judges of their own."""

import logging
import os
from random import Random

import httpx
import pytest

from apps.demo.settings import ORDERS
from apps.demo.shop import open_shop
from examples.handlers import PAIRS
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


def test_the_shop_of_the_demo_sends_each_parcel_once():
    app = App("memory://")
    open_shop(app)
    orders = [Message(ORDERS, {"order": str(number)}) for number in range(3)]
    prove(Proof(app, messages=orders), range(60 if SOAK else 3))
