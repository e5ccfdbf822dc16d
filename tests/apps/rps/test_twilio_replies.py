"""Replies by Twilio, over real connections: sent once, and what is unclear is asked."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import pytest
from aiohttp import web

from apps.rps import limits, words
from apps.rps.game import Game
from apps.rps.outgoing import call
from apps.rps.provider import Reply
from apps.rps.twilio import Twilio
from onceward.app import App
from onceward.errors import NotDone
from tests.apps.rps.fakes import ACCOUNT, TOKEN, FakeTwilio, error, hang_up, standing
from tests.needs import need

URL = "https://play.example/hooks/rps/twilio"
SID = "SM0123456789abcdef0123456789abcdef"


@asynccontextmanager
async def playing(
    monkeypatch: pytest.MonkeyPatch, token: str = TOKEN
) -> AsyncIterator[tuple[FakeTwilio, App, Game]]:
    monkeypatch.setattr(limits, "SETTLE_PAUSE_S", 0.0)
    async with standing(FakeTwilio()) as twilio:
        app = App("memory://")
        game = Game(app, [Twilio(ACCOUNT, token, URL, api=twilio.url)])
        async with app:
            # So that what is tried again is tried at once.
            await app.queues.configure("rps-replies-twilio", retry_first_s=0.001, retry_max_s=0.001)
            yield twilio, app, game


async def reply_to(app: App, game: Game, id_: str, text: str = "help") -> Any:
    """The job of the reply to a text, when it has ended."""
    receipt = await game.accept("twilio", id_, "+12025550101", text, ours="+12025550100")
    [reply] = (await app.wait(receipt.id)).result["replies"]
    return await app.wait(reply["id"], 30)


async def test_a_reply_is_sent_by_the_rest_api(monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        job = await reply_to(app, game, "1", "nick Zoë")
        assert (job.state, job.result) == ("succeeded", {"sid": twilio.messages[0]["sid"]})
        [message] = twilio.messages
        assert (message["to"], message["from"]) == ("+12025550101", "+12025550100")
        assert message["body"] == words.welcome("Zoë")


@pytest.mark.parametrize("code", [21610, 21211, 21408])
async def test_a_reply_that_is_refused_is_final(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        twilio.answers = [error(400, code)]
        job = await reply_to(app, game, "1")
        assert (job.state, job.attempt, job.result["refused"]) == ("succeeded", 1, code)
        assert len(twilio.requests) == 1
        assert (await reply_to(app, game, "2", "start")).result.keys() == {"sid"}, "others are sent"


async def test_a_reply_that_was_not_taken_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        twilio.answers = [
            error(429, 20429),
            error(503, 20503, **{"Retry-After": "0"}),
            error(401, 20003),
        ]
        job = await reply_to(app, game, "1")
        assert (job.state, job.attempt, len(twilio.messages)) == ("succeeded", 4, 1)
        assert [method for method, *_ in twilio.requests] == ["POST"] * 4, "nobody had to ask"
        assert "20429" in job.history[0].reason


@pytest.mark.parametrize("kept", [True, False])
async def test_a_reply_without_an_answer_is_settled_by_asking(
    monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        await reply_to(app, game, "0")  # the same words, as another reply
        # And in a time before there was a reply.
        old = {**twilio.messages[0], "sid": "SM old", "date_created": formatdate(0)}
        twilio.messages.insert(0, old)
        twilio.answers = [twilio.keep_and_hang_up if kept else hang_up]
        job = await reply_to(app, game, "1")
        assert (job.state, job.attempt) == ("succeeded", 1 if kept else 2)
        assert len(twilio.messages) == 3, "never twice, and never lost"
        assert job.result["sid"] == twilio.messages[-1]["sid"]
        assert job.result.get("settled", False) is kept
        job = await reply_to(app, game, "2")
        assert job.result["sid"] == twilio.messages[-1]["sid"]


async def test_a_reply_that_nobody_can_tell_of_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        twilio.answers = [error(500, 20500)] * (1 + limits.SETTLE_ASKS)
        job = await reply_to(app, game, "1")
        assert job.state == "in_doubt"
        assert "could not be determined" in job.reason
        assert twilio.messages == []
        [letter] = await app.queues.failed("rps-replies-twilio")
        await app.queues.settle(letter.id, "call", done=False)
        assert (await app.wait(letter.id, 30)).state == "succeeded"
        assert len(twilio.messages) == 1


@pytest.mark.parametrize("kept", [True, False])
async def test_one_question_in_vain_leaves_no_doubt(
    monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        twilio.answers = [twilio.keep_and_hang_up if kept else hang_up]
        twilio.answers += [error(500, 20500), hang_up]
        job = await reply_to(app, game, "1")
        assert (job.state, len(twilio.messages)) == ("succeeded", 1)
        assert job.result.get("settled", False) is kept


@pytest.mark.parametrize("others", [98, 99, 150])
async def test_a_reply_behind_many_newer_messages_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    async with playing(monkeypatch) as (twilio, app, game):

        def keep_among_many(request: Any) -> Any:
            answer = twilio.keep_and_hang_up(request)
            for number in range(others):
                twilio.keep({**twilio.requests[-1][3], "Body": f"by another program, {number}"})
            return answer

        twilio.answers = [keep_among_many]
        job = await reply_to(app, game, "1")
        sent = [message for message in twilio.messages if message["body"] == words.HELP]
        assert (job.state, len(sent)) == ("succeeded" if others < 100 else "in_doubt", 1)


async def test_a_message_that_may_be_another_reply_counts_for_neither(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        twilio.answers = [twilio.keep_and_hang_up]
        twilio.answers += [error(500, 20500)] * limits.SETTLE_ASKS
        first = await reply_to(app, game, "1")
        assert first.state == "in_doubt"
        # What is there is the first one, of which nobody has heard; this one never was.
        twilio.answers = [hang_up]
        second = await reply_to(app, game, "2")
        assert (second.state, len(twilio.messages)) == ("in_doubt", 1)
        assert "may be another reply" in second.reason
        # Someone says what became of both. The message is still not told from a third one.
        sent, lost = sorted(letter.id for letter in await app.queues.failed("rps-replies-twilio"))
        await app.queues.settle(sent, "call", done=True)
        await app.queues.settle(lost, "call", done=False)
        assert (await app.wait(lost, 30)).result == {"sid": twilio.messages[1]["sid"]}
        twilio.answers = [hang_up]
        assert (await reply_to(app, game, "3")).state == "in_doubt"
        # Other words, and what is not cut off, are as clear as ever.
        twilio.answers = [twilio.keep_and_hang_up]
        assert (await reply_to(app, game, "4", "top")).result["settled"]
        assert (await reply_to(app, game, "5")).result == {"sid": twilio.messages[3]["sid"]}


async def test_what_was_refused_or_not_taken_leaves_no_doubt_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        twilio.answers = [error(429, 20429), twilio.keep_and_hang_up]
        assert (await reply_to(app, game, "1")).result["settled"]
        twilio.answers = [error(400, 21211)]
        assert (await reply_to(app, game, "2")).result["refused"] == 21211
        twilio.answers = [twilio.keep_and_hang_up]
        job = await reply_to(app, game, "3")
        assert job.result == {"sid": twilio.messages[1]["sid"], "settled": True}


async def test_a_message_that_is_known_to_be_a_reply_is_found_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with playing(monkeypatch) as (twilio, _, game):
        provider = game.providers["twilio"]
        reply = Reply("+12025550101", "+12025550100", "hello")
        sent = await provider.send("a", reply)
        twilio.answers = [twilio.keep_and_hang_up]
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await provider.send("b", reply)
        # Its sender was killed before it could tell; meanwhile there is one that nobody knows.
        for _ in range(2):
            assert await provider.ask("a", reply, 0) == {**sent, "settled": True}
        with pytest.raises(RuntimeError, match="may be another reply"):
            await provider.ask("c", reply, 0)
        assert (await provider.ask("b", reply, 0))["sid"] == twilio.messages[1]["sid"]


@pytest.mark.parametrize("back", [True, False])
async def test_where_twilio_cannot_be_asked_a_reply_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        asked = 0

        async def calling(method: str, url: str, **options: Any) -> Any:
            nonlocal asked
            asked += method == "GET"
            if method == "GET" and (asked < limits.SETTLE_ASKS or not back):
                url = "http://127.0.0.1:1/"
            return await call(method, url, **options)

        monkeypatch.setattr("apps.rps.twilio.call", calling)
        twilio.answers = [twilio.keep_and_hang_up]
        job = await reply_to(app, game, "1")
        assert asked == limits.SETTLE_ASKS
        if back:
            sid = twilio.messages[0]["sid"]
            assert (job.state, job.result) == ("succeeded", {"sid": sid, "settled": True})
        else:
            assert job.state == "in_doubt"
            assert "the lookup at Twilio failed" in job.reason
        assert len(twilio.messages) == len(twilio.requests) - back == 1, "never twice"


TRIAL = "Sent from your Twilio trial account - "


@pytest.mark.parametrize(
    "stores",
    [
        lambda body: f"{TRIAL}{body}",
        lambda body: f"{TRIAL}\u201c{body}\u201d".replace(",", "\u201a").replace("o", "\u00f3"),
        lambda body: body.replace(" ", "\u00a0").upper(),
    ],
)
async def test_a_reply_that_twilio_stores_in_other_characters_is_sent_once(
    monkeypatch: pytest.MonkeyPatch, stores: Any
) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        twilio.stores = stores
        twilio.answers = [twilio.keep_and_hang_up]
        job = await reply_to(app, game, "1", "nick Zo\u00eb")
        sid = twilio.messages[0]["sid"]
        assert (job.state, job.result) == ("succeeded", {"sid": sid, "settled": True})
        assert len(twilio.messages) == 1


@pytest.mark.parametrize("body", ["***", "", None, "Rock, paper, scis", "the answer is 42"])
async def test_a_reply_that_twilio_stores_in_other_words_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch, body: str | None
) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        twilio.stores = lambda _: body
        twilio.answers = [twilio.keep_and_hang_up]
        job = await reply_to(app, game, "1")
        assert (job.state, len(twilio.messages)) == ("in_doubt", 1), "not sent twice"
        assert "may be this reply" in job.reason


async def test_two_messages_that_match_leave_a_reply_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with playing(monkeypatch) as (twilio, app, game):

        def keep_twice(request: Any) -> Any:
            twilio.keep(twilio.requests[-1][3])
            return twilio.keep_and_hang_up(request)

        twilio.answers = [keep_twice]
        job = await reply_to(app, game, "1")
        assert (job.state, len(twilio.messages)) == ("in_doubt", 2)


async def test_what_others_sent_to_the_phone_in_other_ways_is_no_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with playing(monkeypatch) as (twilio, app, game):

        def hear_of_others(request: Any) -> Any:
            twilio.keep(twilio.requests[-1][3])["direction"] = "outbound-reply"
            return hang_up(request)

        twilio.answers = [hear_of_others]
        job = await reply_to(app, game, "1")
        assert (job.state, job.attempt, len(twilio.messages)) == ("succeeded", 2, 2)
        assert job.result == {"sid": twilio.messages[1]["sid"]}


async def test_a_list_that_goes_on_elsewhere_is_not_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with playing(monkeypatch) as (twilio, app, game):

        def list_a_part(request: Any) -> Any:
            return web.json_response({"messages": [], "next_page_uri": "/2010-04-01/more"})

        twilio.answers = [twilio.keep_and_hang_up, *[list_a_part] * limits.SETTLE_ASKS]
        job = await reply_to(app, game, "1")
        assert (job.state, len(twilio.messages)) == ("in_doubt", 1)


async def test_an_address_for_callbacks_that_twilio_refuses_loses_no_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with playing(monkeypatch) as (twilio, app, game):
        twilio.answers = [error(400, 21609)]
        job = await reply_to(app, game, "1")
        assert (job.state, job.attempt, len(twilio.messages)) == ("succeeded", 2, 1)


class Noting:
    """In the place of the HTTP client of Twilio's library: notes what it would send."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def request(self, method: str, url: str, **options: Any) -> Any:
        self.calls.append({"method": method, "path": urlsplit(url).path, **options})
        response = need("twilio.http.response").Response
        if method == "POST":
            return response(201, json.dumps({"sid": SID}))
        return response(200, json.dumps({"messages": []}))


async def test_what_is_sent_and_asked_is_what_twilios_own_client_sends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noting = Noting()
    client = need("twilio.rest").Client(ACCOUNT, TOKEN, http_client=noting)
    to, ours = "+12025550101", "+12025550100"
    async with playing(monkeypatch) as (twilio, app, game):
        twilio.answers = [twilio.keep_and_hang_up]
        receipt = await game.accept("twilio", "1", to, "help", ours=ours)
        [reply] = (await app.wait(receipt.id)).result["replies"]
        await app.wait(reply["id"], 30)
        callback = f"{URL}/status?reply={reply['id']}"
        client.messages.create(to=to, from_=ours, body=words.HELP, status_callback=callback)
        client.messages.list(to=to, from_=ours, page_size=100)
        sent, asked = noting.calls
        (post, path, headers, form), (get, found, same, _) = twilio.requests
    basic = base64.b64encode(":".join(sent["auth"]).encode()).decode()
    assert headers["authorization"] == same["authorization"] == f"Basic {basic}"
    assert (post, path, form) == (sent["method"], sent["path"], sent["data"])
    assert headers["content-type"] == sent["headers"]["Content-Type"]
    path, _, query = found.partition("?")
    wanted = {name: str(value) for name, value in asked["params"].items() if value is not None}
    assert (get, path, dict(parse_qsl(query))) == (asked["method"], asked["path"], wanted)


async def test_where_nobody_answers_nothing_was_sent() -> None:
    twilio = Twilio(ACCOUNT, TOKEN, URL, api="http://127.0.0.1:1")
    Game(app := App("memory://"), [twilio])
    async with app:
        with pytest.raises(NotDone, match="cannot connect"):
            await twilio.send("id", Reply("+12025550101", "+12025550100", "hello"))
