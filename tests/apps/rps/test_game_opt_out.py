"""Opting out of texts, as carriers require: nothing is sent to a phone that has said STOP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from apps.rps import aws, limits, words
from apps.rps.game import Game, outbox_of
from apps.rps.provider import Reply
from apps.rps.sns import Sns
from apps.rps.twilio import Twilio
from apps.rps.web import Web
from onceward.app import App
from tests.apps.rps.amazon import TOPIC
from tests.apps.rps.carrier import NUMBERS, Carrier, Table, table
from tests.apps.rps.fakes import (
    ACCOUNT,
    TOKEN,
    Fake,
    FakeSns,
    FakeTwilio,
    error,
    sns_error,
    standing,
)
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

KEYWORDS = ("STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "REVOKE", "OPTOUT")
ANN, BOB, OURS = NUMBERS["Ann"], NUMBERS["Bob"], "+12025550100"
URL = "https://play.example/rps/twilio"


@pytest.mark.parametrize("keyword", KEYWORDS)
@virtual
async def test_every_word_of_carriers_opts_out(keyword: str) -> None:
    for text in (keyword, keyword.lower(), f"{keyword.title()}!", f"  \u201c{keyword}\u201d.\n"):
        async with table("Ann", "Bob") as game:
            await game.play("Bob: throw rock Ann")
            assert await game.play(f"Ann: {text}") == {
                "Ann": [words.OPTED_OUT],
                "Bob": [words.they_left("Ann")],
            }


@virtual
async def test_nothing_is_sent_to_a_phone_that_has_opted_out() -> None:
    async with table("Ann", "Bob") as game:
        await game.play("Ann: stop")
        for text in ("help", "nick Ann", "throw rock Bob", "STOP", "top", "", "HELP ME"):
            assert await game.play(f"Ann: {text}") == {}, text
        assert await game.play("Bob: throw rock Ann") == {"Bob": [words.no_such_opponent("Ann")]}


@pytest.mark.parametrize("word", ["START", "unstop", "Start!"])
@virtual
async def test_start_undoes_it(word: str) -> None:
    async with table("Ann") as game:
        await game.play("Ann: stop")
        assert await game.play(f"Ann: {word}") == {"Ann": [words.BACK]}
        assert await game.play(f"Ann: {word}") == {"Ann": [words.HELP]}
        assert await game.play("Ann: nick Ann") == {"Ann": [words.welcome("Ann")]}


@virtual
async def test_yes_alone_opts_nobody_in() -> None:
    async with table("Ann") as game:
        await game.play("Ann: stop")
        assert await game.play("Ann: yes") == {}


@virtual
async def test_replies_that_still_wait_are_dropped_and_the_confirmation_is_sent() -> None:
    async with table("Ann", "Bob") as game:
        await game.app.queues.pause(outbox_of("carrier"))
        before = len(game.carrier.sent)
        for number, (name, text) in enumerate(
            [("Ann", "help"), ("Bob", "throw rock Ann"), ("Ann", "Stop.")]
        ):
            receipt = await game.game.accept("carrier", f"late-{number}", NUMBERS[name], text)
            job = await game.app.wait(receipt.id)
        await game.app.queues.resume(outbox_of("carrier"))
        await game.settle()
        heard = [reply.text for _, reply in game.carrier.sent[before:] if reply.to == ANN]
        assert heard == [words.OPTED_OUT]
        [confirmation] = job.result["replies"]
        assert (await game.app.wait(confirmation["id"])).state == "succeeded"


@virtual
async def test_the_web_page_has_no_carrier_and_no_opt_out() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    game = Game(app, [Web()])
    async with app:
        for number, text in enumerate(("nick Ann", "stop", "nick Ann", "start")):
            receipt = await game.accept("web", f"text-{number}", "ann", text)
            [reply] = (await app.wait(receipt.id)).result["replies"]
            assert (await app.wait(reply["id"])).state == "succeeded"
        assert apps.value(("rps-player", "@ann"))["nick"] == "Ann"


class Confirming(Carrier):
    """Replies to keywords itself."""

    answers_keywords = True


@virtual
async def test_a_provider_that_confirms_is_not_repeated() -> None:
    app, carrier = Apps(shared=False).make(), Confirming()
    game = Table(app, Game(app, [carrier]), carrier)
    async with app:
        assert await game.play("Ann: nick Ann", "Ann:  Stop ") == {}
        assert await game.play("Ann: help") == {}
        assert await game.play("Ann: start") == {"Ann": [words.BACK]}
        # It recognises the word alone.
        assert await game.play("Ann: stop it") == {"Ann": [words.OPTED_OUT]}


@pytest.mark.parametrize("text", ["STOP", "no more please"])
@virtual
async def test_a_keyword_that_the_provider_has_recognised_counts_for_the_text(text: str) -> None:
    async with table("Ann", "Bob") as game:
        await game.play("Bob: throw rock Ann")

        async def told(id_: str, said: str, keyword: str) -> list[str]:
            before = len(game.carrier.sent)
            receipt = await game.game.accept("carrier", id_, ANN, said, keyword=keyword)
            await game.app.wait(receipt.id)
            await game.settle()
            return [reply.text for _, reply in game.carrier.sent[before:]]

        assert await told("1", "help", "HELP") == [], "it has replied itself"
        assert await told("2", text, "STOP") == [words.they_left("Ann")]
        assert await told("3", "nick Ann", "") == []
        assert await told("4", "YES", "START") == []
        assert await told("5", "nick Ann", "") == [words.welcome("Ann")]


# What providers refuse.


@asynccontextmanager
async def refusing(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[App, Game]]:
    """A game whose provider is a double."""
    monkeypatch.setattr(limits, "SETTLE_PAUSE_S", 0.0)
    async with standing(fake):
        app = App("memory://")
        if isinstance(fake, FakeTwilio):
            game = Game(app, [Twilio(ACCOUNT, TOKEN, URL, api=fake.url)])
        else:
            key = aws.Credentials("AKIDEXAMPLE", "secret")
            game = Game(app, [Sns(key, "us-east-1", [TOPIC], api=fake.url)])
        async with app:
            yield app, game


async def replies_to(app: App, game: Game, id_: str, phone: str, text: str) -> list[Any]:
    """The jobs of the replies to a text, when they have ended."""
    [via] = game.providers
    receipt = await game.accept(via, id_, phone, text, ours=OURS)
    found = (await app.wait(receipt.id)).result["replies"]
    return [await app.wait(reply["id"], 30) for reply in found]


@pytest.mark.parametrize(
    ("fake", "answer", "code"),
    [
        (FakeTwilio, error(400, 21610), 21610),
        (FakeSns, sns_error(400, "OptedOut"), "OptedOut"),
        (FakeSns, sns_error(400, "InvalidParameter", "+1 is opted out"), "InvalidParameter"),
    ],
)
async def test_a_refusal_for_that_reason_is_final_and_opts_out(
    fake: type[Fake], answer: Any, code: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    double = fake()
    async with refusing(double, monkeypatch) as (app, game):
        for phone, text in ((ANN, "nick Ann"), (BOB, "nick Bob"), (BOB, "throw rock Ann")):
            await replies_to(app, game, text, phone, text)
        before = len(double.requests)
        double.answers = [answer]
        [refused] = await replies_to(app, game, "1", ANN, "help")
        assert (refused.state, refused.attempt, refused.result["refused"]) == ("succeeded", 1, code)
        assert refused.result["opted_out"] is True
        # As if Ann had said it: she is gone, Bob hears of it, and nothing more is sent to her.
        while len(double.requests) == before + 1:
            await app.store.clock.sleep(0.01)
        [_, (_, _, _, told)] = double.requests[before:]
        assert {BOB, words.they_left("Ann")} < set(told.values())
        assert await replies_to(app, game, "2", ANN, "help") == []
        [back] = await replies_to(app, game, "3", ANN, "start")
        assert (back.state, back.result.get("refused")) == ("succeeded", None)


async def test_other_refusals_opt_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with refusing(twilio := FakeTwilio(), monkeypatch) as (app, game):
        twilio.answers = [error(400, 21211)]
        [refused] = await replies_to(app, game, "1", ANN, "help")
        assert refused.result.keys() == {"refused", "said"}
        [sent] = await replies_to(app, game, "2", ANN, "help")
        assert "sid" in sent.result


@virtual
async def test_a_refusal_from_before_a_start_counts_for_nothing() -> None:
    async with table("Ann", "Bob") as game:
        began_ms = game.app.store.clock.now_ms()
        await game.play("Ann: stop", "Ann: start", "Ann: nick Ann")
        await game.game.opt_out(ANN, began_ms)
        assert await game.play("Ann: games") == {"Ann": [words.NOTHING_PENDING]}
        for _ in range(2):
            await game.game.opt_out(ANN, game.app.store.clock.now_ms() + 1)
        assert await game.play("Ann: games") == {}
        await game.game.opt_out("+12025550199", 0)
        assert await game.play("+12025550199: help") == {}


@virtual
async def test_a_confirmation_is_sent_to_the_phone_that_has_opted_out() -> None:
    async with table() as game:
        await game.play("Ann: stop")
        [(_, reply)] = game.carrier.sent
        assert reply == Reply(ANN, "", words.OPTED_OUT, confirms=True)
