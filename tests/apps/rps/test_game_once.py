"""What the original got wrong: texts that come again, throws at one instant, locks that stay."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.rps import game as game_module
from apps.rps import rules, words
from apps.rps.game import FAREWELLS, TEXTS, Game, outbox_of
from apps.rps.records import ALL, scores_of, thrown_by
from onceward.errors import BadInput
from tests.apps.rps.carrier import NUMBERS, Carrier, Table, table
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

pytestmark = pytest.mark.no_cover


async def ids_of(table: Table) -> dict[str, str]:
    """Players' ids by their nicknames."""

    async def find(tx: Any) -> dict[str, str]:
        return {row.value["nick"]: row.value["id"] for row in await tx.scan("rps-player")}

    return await table.app.run(find)


@virtual
async def test_a_text_delivered_ten_times_at_once_takes_effect_once() -> None:
    apps = Apps(shared=False)
    async with table("Ann", "Bob", apps=apps) as game:
        await game.play("Ann: t r Bob")
        before = len(game.carrier.sent)
        sent = [game.game.accept("carrier", "one", NUMBERS["Bob"], "t s Ann") for _ in range(10)]
        receipts = await asyncio.gather(*sent)
        assert len({receipt.id for receipt in receipts}) == 1
        assert [receipt.duplicate for receipt in receipts].count(False) == 1
        job = await game.app.wait(receipts[0].id)
        await game.settle()
        assert await game.deliver("one", "Bob", "t s Ann") == {}
        sent_ids = {id_ for id_, _ in game.carrier.sent[before:]}
        assert sent_ids == {reply["id"] for reply in job.result["replies"]}
        assert len(game.carrier.sent) == before + 2
        ids = await ids_of(game)
        assert apps.value((scores_of(ids["Ann"]), ALL))["wins"] == 1
        assert apps.value((thrown_by(ids["Ann"]), ids["Bob"])) is None


@virtual
async def test_two_who_throw_at_the_same_instant_a_thousand_times_finish_a_thousand_games(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decided = 0

    async def counted(*args: Any) -> Any:
        nonlocal decided
        decided += 1
        return await decide(*args)

    apps = Apps(shared=False)
    async with table("Ann", "Bob", apps=apps) as game:
        await game.app.queues.pause(outbox_of("carrier"))
        monkeypatch.setattr(game_module, "decide", counted)
        apps.engines[0].latency_s = 0.001  # so that both have read before either commits
        for number in range(1_000):
            receipts = await asyncio.gather(
                game.game.accept("carrier", f"a{number}", NUMBERS["Ann"], "t r Bob"),
                game.game.accept("carrier", f"b{number}", NUMBERS["Bob"], "t s Ann"),
            )
            for receipt in receipts:
                assert (await game.app.wait(receipt.id)).state == "succeeded"
        apps.engines[0].latency_s = 0.0
        assert decided >= 2_900, "in nearly all games one has to look again"
        ids = await ids_of(game)
        whole = apps.value((scores_of(ids["Ann"]), ALL))
        assert (whole["wins"], whole["losses"], whole["ties"]) == (1_000, 0, 0)
        assert apps.value((scores_of(ids["Bob"]), ids["Ann"]))["losses"] == 1_000
        assert not [key for key in apps.own if key[0].startswith(("rps-thrown", "rps-awaited"))]
        replies = await game.app.store.run(count_replies)
        assert replies == 4_000, "two for each throw: none is lost, none is there twice"


async def count_replies(tx: Any) -> int:
    rows = [row for slot in range(4) for row in await tx.scan(f"job#{slot:04d}", limit=10_000)]
    queues = [row.value["queue"] for row in rows if row.value.get("stage") in ("ready", "blocked")]
    return queues.count(outbox_of("carrier"))


class Stoppable(Carrier):
    """Its game stands still in the middle of a text, if it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.stands = asyncio.Event()
        self.go_on = asyncio.Event()
        self.texts: set[str] = set()

    async def decide(self, tx: Any, line: Any, command: Any, id_: str, duels: Any) -> Any:
        outcome = await decide(tx, line, command, id_, duels)
        if command.play in self.texts:
            self.stands.set()
            await self.go_on.wait()
        return outcome


decide = game_module.decide


async def stand_still(monkeypatch: pytest.MonkeyPatch, apps: Apps) -> tuple[Any, Game, Stoppable]:
    """A node that holds Ann's throw and stands still before its end."""
    carrier = Stoppable()
    monkeypatch.setattr(game_module, "decide", carrier.decide)
    app = apps.make(node_lease_s=1)
    game = Game(app, [carrier])
    process = await apps.start(app)
    for name in ("Ann", "Bob"):
        receipt = await process.spawn(game.accept("carrier", name, NUMBERS[name], f"nick {name}"))
        await process.spawn(app.wait(receipt.id))
    carrier.texts.add("rock")
    await process.spawn(game.accept("carrier", "throw", NUMBERS["Ann"], "throw rock Bob"))
    await carrier.stands.wait()
    carrier.texts.clear()
    return process, game, carrier


@virtual
async def test_a_worker_that_is_killed_before_its_cleanup_leaves_nothing_locked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apps = Apps()
    process, _, carrier = await stand_still(monkeypatch, apps)
    process.kill()
    app = apps.make(node_lease_s=1)
    game = Game(app, [carrier])
    async with app:
        table = Table(app, game, carrier)
        # Bob, whom the original would have locked too, need not even wait.
        assert await table.deliver("bob", "Bob", "games") is not None
        receipt = await game.accept("carrier", "throw", NUMBERS["Ann"], "throw rock Bob")
        assert receipt.duplicate
        assert (await app.wait(receipt.id, 60)).state == "succeeded"
        await table.settle()
        heard = await table.deliver("back", "Bob", "throw paper Ann")
        assert heard["Ann"] == [words.loss("rock", "paper", "Bob")]


@virtual
async def test_a_late_worker_can_do_nothing_to_who_came_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apps = Apps()
    process, _, carrier = await stand_still(monkeypatch, apps)
    process.pause()
    app = apps.make(node_lease_s=1)
    game = Game(app, [carrier])
    async with app:
        table = Table(app, game, carrier)
        receipt = await game.accept("carrier", "throw", NUMBERS["Ann"], "throw rock Bob")
        assert (await app.wait(receipt.id, 60)).state == "succeeded", (
            "its lease ran out, and counted"
        )
        await table.settle()
        await table.deliver("back", "Bob", "throw paper Ann")
        before = len(carrier.sent)
        carrier.go_on.set()
        process.resume()  # it would now throw, and free what is not its own any more
        await app.store.clock.sleep(60)
        await table.settle()
        assert len(carrier.sent) == before
        assert await table.deliver("games", "Ann", "games") == {"Ann": [words.NOTHING_PENDING]}
        heard = await table.deliver("score", "Ann", "score")
        assert heard["Ann"] == ["Total: 0 won, 1 lost, 0 ties. Against Bob: 0 won, 1 lost, 0 ties."]
    process.kill()


@virtual
async def test_a_poison_text_holds_up_nobody_else_and_its_sender_only_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = rules.read

    def fail(text: str) -> Any:
        if text == "poison":
            raise ValueError("a bug in the rules")
        return read(text)

    monkeypatch.setattr(rules, "read", fail)
    async with table("Ann", "Bob") as game:
        poison = await game.game.accept("carrier", "poison", NUMBERS["Ann"], "poison")
        behind = await game.game.accept("carrier", "behind", NUMBERS["Ann"], "t r Bob")
        other = await game.game.accept("carrier", "other", NUMBERS["Bob"], "games")
        assert (await game.app.wait(other.id, 1)).state == "succeeded"
        assert (await game.app.job(poison.id)).state != "failed"
        assert (await game.app.wait(behind.id, 60)).state == "succeeded", "not before the poison"
        assert (await game.app.job(poison.id)).state == "failed"
        [letter] = await game.app.queues.failed(TEXTS)
        assert "a bug in the rules" in letter.job.reason
        monkeypatch.setattr(rules, "read", lambda text: read("help"))
        await game.app.queues.retry(poison.id)
        assert (await game.app.wait(poison.id, 60)).state == "succeeded"


@virtual
async def test_another_text_under_a_known_id_changes_nothing() -> None:
    async with table("Ann", "Bob") as game:
        await game.deliver("one", "Ann", "t r Bob")
        assert await game.deliver("one", "Ann", "t s Bob") == {}
        heard = await game.play("Bob: t s Ann")
        assert heard["Ann"] == [words.win("rock", "scissors", "Bob")]


@virtual
async def test_what_comes_from_no_phone_number_is_refused_and_not_stored() -> None:
    apps = Apps(shared=False)
    async with table(apps=apps) as game:
        for sender in ("", "12345", "Ann", "whatsapp:+12025550101", "+0123456789", "+1" * 20):
            with pytest.raises(BadInput):
                await game.game.accept("carrier", "id", sender, "help")
        with pytest.raises(BadInput):
            await game.game.accept("carrier", "", NUMBERS["Ann"], "help")
        assert not [key for key in apps.records if key[0].startswith(("job", "inbox"))]


@virtual
async def test_replies_go_where_the_last_text_came_from() -> None:
    class Second(Carrier):
        name = "second"

    first, second = Carrier(), Second()
    app = Apps(shared=False).make()
    game = Game(app, [first, second])
    async with app:
        table = Table(app, game, first)
        await table.play("Ann: nick Ann", "Bob: nick Bob")
        await game.accept("second", "x", NUMBERS["Bob"], "games", ours="+12025550188")
        await table.settle()
        assert await table.play("Ann: t r Bob") == {"Ann": [words.you_wait("rock", "Bob")]}
        replies = [(reply.ours, reply.text) for _, reply in second.sent]
        assert replies == [
            ("+12025550188", words.NOTHING_PENDING),
            ("+12025550188", words.they_wait("Ann")),
        ]


@virtual
async def test_a_game_with_one_who_left_is_over_before_it_is_cleared_away() -> None:
    async with table("Ann", "Bob", "Cid") as game:
        await game.play("Ann: t r Bob", "Bob: t p Cid")
        await game.app.queues.pause(FAREWELLS)
        texts = ("quit", "start", "nick Bob")
        for number, text in enumerate(texts):
            receipt = await game.game.accept("carrier", f"bob-{number}", NUMBERS["Bob"], text)
            assert (await game.app.wait(receipt.id)).state == "succeeded"
        for name in ("Ann", "Cid", "Bob"):
            receipt = await game.game.accept("carrier", f"look-{name}", NUMBERS[name], "games")
            await game.app.wait(receipt.id)
        receipt = await game.game.accept("carrier", "again", NUMBERS["Bob"], "t p Ann")
        await game.app.wait(receipt.id)
        await game.app.queues.resume(FAREWELLS)
        await game.settle()
        said = [reply.text for _, reply in game.carrier.sent]
        assert said.count(words.NOTHING_PENDING) == 3
        assert said.count(words.they_left("Bob")) == 1
        heard = await game.play("Ann: games")
        assert heard == {"Ann": [words.pending("", "Bob")]}, "the new game is not cleared away"


@virtual
async def test_who_looks_misses_nothing_that_is_there_before_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    between: list[str] = []

    async def slow(tx: Any, line: Any, command: Any, id_: str, duels: Any) -> Any:
        outcome = await decide(tx, line, command, id_, duels)
        if command.name in ("games", "score") and between:
            id_ = between.pop()
            name, _, text = id_.partition(": ")
            receipt = await game.game.accept("carrier", id_, NUMBERS[name], text)
            await game.app.wait(receipt.id)
        return outcome

    async with table("Ann", "Bob", "Cid") as game:
        monkeypatch.setattr(game_module, "decide", slow)
        between.append("Cid: t r Ann")
        heard = await game.play("Ann: games")
        assert heard["Ann"][-1] == words.pending("", "Cid")
        await game.play("Ann: t p Bob")
        between.append("Bob: t r Ann")
        heard = await game.play("Ann: score")
        assert heard["Ann"][-1].startswith("Total: 1 won")


@virtual
async def test_the_same_id_from_two_providers_is_two_texts() -> None:
    class Second(Carrier):
        name = "second"

    app = Apps(shared=False).make()
    game = Game(app, [first := Carrier(), second := Second()])
    async with app:
        receipts = [await game.accept(via, "1", NUMBERS["Ann"], "help") for via in game.providers]
        await Table(app, game, first).settle()
        assert receipts[0].id != receipts[1].id
        assert (len(first.sent), len(second.sent)) == (1, 1)


TEXT = st.tuples(
    st.sampled_from(["", "nick ", "t r ", "t ", "score ", "help ", "games ", "quit "]),
    st.text() | st.text("x", min_size=1_000, max_size=1_700),
).map("".join)


@settings(max_examples=10)
@given(st.lists(TEXT, min_size=5, max_size=20))
def test_whatever_is_texted_is_answered(texts: list[str]) -> None:
    @virtual
    async def play() -> None:
        async with table("Ann") as game:
            for text in texts:
                heard = await game.text("Bob", text)
                assert len(heard.pop("Bob")) == 1, text
                assert heard == {} or list(heard) == ["Ann"]
                if rules.read(text) == rules.Command("quit"):
                    await game.text("Bob", "start")

    play()
