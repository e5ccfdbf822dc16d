"""The example sender sends all it should, in envelopes that are right, and says what came of it."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from apps.credit import sender, soap
from apps.credit.sender import Answered, Chance, Plan, opportunity, send_all
from tests.apps.credit.envelopes import ORGANISATION
from tests.apps.credit.served import answering, plain


class Endpoint:
    """What it got, and what it is to answer."""

    def __init__(self) -> None:
        self.envelopes: list[soap.Envelope] = []
        self.answers: list[tuple[int, bytes]] = []


async def run(endpoint: Endpoint, plan: Plan) -> list[Answered]:
    """Send everything, without a network."""

    def post(url: str, envelope: bytes, notifications: int) -> Answered:
        endpoint.envelopes.append(soap.read(envelope))
        status, body = endpoint.answers.pop(0) if endpoint.answers else (200, soap.ACK)
        return Answered(notifications, 0.0, status == 200 and body == soap.ACK)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sender, "_send", post)
        return list(send_all(plan, Chance()))


async def test_each_application_is_sent_so_often_out_of_order() -> None:
    endpoint = Endpoint()
    plan = Plan("http://x", ORGANISATION, 30, 20)
    answered = await run(endpoint, plan)
    sent = [one for envelope in endpoint.envelopes for one in envelope.notifications]
    counts = Counter(one.opportunity for one in sent)
    assert counts == {opportunity(number): 20 for number in range(30)}
    assert [one.opportunity for one in sent] != sorted(one.opportunity for one in sent)
    assert all(len(envelope.notifications) <= 100 for envelope in endpoint.envelopes)
    assert sum(one.notifications for one in answered) == 600
    assert all(one.acknowledged for one in answered)
    # What has the same id is the same.
    said: dict[str, Any] = {}
    for one in sent:
        assert said.setdefault(one.id, one.fields) == one.fields
    assert len(said) > 30


async def test_what_is_not_acknowledged_is_sent_again() -> None:
    endpoint = Endpoint()
    endpoint.answers = [(500, b""), (200, b"<Ack>false</Ack>")]
    answered = await run(endpoint, Plan("http://x", ORGANISATION, 3, 2))
    assert [one.acknowledged for one in answered][:2] == [False, False]
    assert sum(one.notifications for one in answered if one.acknowledged) == 6


async def test_what_was_hung_up_on_is_sent_again() -> None:
    endpoint, left = Endpoint(), 3

    def hang_up(url: str, envelope: bytes) -> None:
        nonlocal left
        left -= 1
        plan.hang_up = 1.0 if left else 0.0

    plan = Plan("http://x", ORGANISATION, 3, 2, hang_up=1.0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sender, "_hang_up", hang_up)
        answered = await run(endpoint, plan)
    assert left == 0
    assert sum(one.notifications for one in answered) == 6


async def test_only_an_acknowledgement_is_one() -> None:
    for answer, acknowledged in (
        (plain(200, soap.ACK), True),
        (plain(202, soap.ACK), False),
        (plain(200, b"<Ack>false</Ack>"), False),
        (b"", False),
    ):

        def same(_: bytes, answer: bytes = answer) -> bytes:
            return answer

        async with answering(same) as url:
            answered = await asyncio.to_thread(sender._send, f"{url}/x", b"<x/>", 1)
        assert answered.acknowledged == acknowledged
        assert bool(answered.said) != acknowledged
