"""Many players, everything going wrong: what comes of it is what the plain model says."""

import random
import re
from typing import Any, ClassVar

import msgspec
import pytest

from apps.rps.game import FAREWELLS, TEXTS, Game, Text
from apps.rps.provider import Provider, Reply
from apps.rps.records import Line
from onceward.app import App
from onceward.keys import shown_key
from onceward.testing.simulation import History, simulate, simulate_many, violated
from onceward.testing.simulation.handlers import Handlers, Outcome, Outside
from tests.apps.rps.model import Model

PHONES = [f"+1202555010{digit}" for digit in range(3)]
NICKS = ["Ann", "Bob", "cid"]
SEEDS = 3


class Distant(Provider):
    """Sends texts that cost money, and cannot be asked."""

    name: ClassVar[str] = "distant"

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    async def send(self, id_: str, reply: Reply) -> Any:
        return await self._outside.call("text", id_, [reply.to, reply.text])


class Playing(Handlers):
    """Players who claim nicknames, throw at each other, look, and quit."""

    clients = (2, 5)
    operations = (40, 100)
    kinds = ("games finished", "nicknames changed hands")

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0

    def declare(self, app: App, outside: Outside) -> None:
        Game(app, [Distant(outside)])

    def message(self, random: random.Random) -> tuple[str, Any]:
        self.sent += 1
        at = random.randrange(len(PHONES))
        word = random.choice(["nick"] * 4 + ["throw"] * 20 + ["games", *["quit", "start"] * 2])
        if self.sent <= len(PHONES):
            at, word = self.sent - 1, "nick"
        # Mostly their own nickname, and someone else's to throw at; but nobody is sure.
        own = NICKS[at] if random.random() < 0.8 else random.choice(NICKS)
        nick = own if word == "nick" else random.choice(NICKS)
        text = {
            "nick": f" {random.choice(['n', 'NICK'])} {nick}",
            "throw": f"{random.choice('tp')} {random.choice(['rock', 'p', 'sci'])} {nick.upper()} ",
        }.get(word, word)
        line = Line(PHONES[at], "distant", "+12025550199")
        return TEXTS, msgspec.to_builtins(Text(line, text))

    def options(self, queue: str, body: Any, random: random.Random) -> dict[str, Any]:
        return {"order_key": body["line"]["phone"], "caller": "distant"}

    def judge_outcome(self, outcome: Outcome) -> None:
        judge_replies(outcome)
        model = Model()
        for id_, queue in ended_in_order(outcome.history, outcome.jobs):
            replay(model, outcome.jobs, id_, queue)
        if owed := model.still_owed():
            violated("not told", f"{owed} have not heard who left")
        out = {phone for phone, one in outcome.records("rps-consent").items() if one["out"]}
        if out != model.out:
            violated("opted out", f"{out}, not {model.out}")
        players = {phone: one["nick"] for phone, one in outcome.records("rps-player").items()}
        if players != model.nicks:
            violated("players", f"{players}, not {model.nicks}")
        if len(outcome.records("rps-nick")) != len(players):
            violated("nicknames", f"{outcome.records('rps-nick')} of {players}")
        judge_pending(outcome, model)
        top = sorted(outcome.records("rps-top").values())
        if top != sorted(model.nicks[phone] for phone in model.wins):
            violated("top", f"{top}, not {model.wins}")
        outcome.history.seen["games finished"] += model.games
        outcome.history.seen["nicknames changed hands"] += model.changed_hands


def ended_in_order(history: History, jobs: dict[str, Any]) -> list[tuple[str, str]]:
    """The texts and farewells that were done, in the order of their commits."""
    found: dict[str, str] = {}
    for commit in history.commits:
        for write in commit.writes:
            id_ = write.key[1].removesuffix("#job")
            if id_ in jobs and jobs[id_]["queue"] in (TEXTS, FAREWELLS) and id_ not in found:
                value = msgspec.json.decode(getattr(write, "value", b"null"))
                if write.key[1].endswith("#job") and value and value["stage"] == "succeeded":
                    found[id_] = jobs[id_]["queue"]
    return list(found.items())


def replay(model: Model, jobs: dict[str, Any], id_: str, queue: str) -> None:
    """Compare the replies of a job with those of the model."""
    job = jobs[id_]
    said = [
        (jobs[reply["id"]]["body"]["to"], jobs[reply["id"]]["body"]["text"])
        for reply in job["result"]["replies"]
    ]
    if queue == FAREWELLS:
        for phone, text in said:
            model.left(phone, text)
        return
    wanted = model.text(job["body"]["line"]["phone"], read(job["body"]["text"]))
    if sort_names(said) != sort_names(wanted):
        violated("replies", f"{job['body']}: {said}, not {wanted}")


def read(text: str) -> tuple[str, ...]:
    first, *rest = text.split()
    if first in ("t", "p"):
        play = {"rock": "rock", "p": "paper", "sci": "scissors"}[rest[0]]
        return "throw", play, rest[1]
    return ("nick", rest[0]) if rest else (first,)


def sort_names(said: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """In an order that is the same for all: also of the names of those who wait."""
    return sorted((phone, re.sub(r"\w+(?:, \w+)+", _sorted, text)) for phone, text in said)


def _sorted(names: re.Match[str]) -> str:
    return ", ".join(sorted(names[0].split(", ")))


def judge_replies(outcome: Outcome) -> None:
    """Each reply of a text that was done is there under one id, and was sent once; unless its
    sending was cut off, which leaves it in doubt."""
    sent = outcome.counts("text")
    named = [
        reply["id"]
        for job in outcome.jobs.values()
        if job["queue"] in (TEXTS, FAREWELLS) and job["state"] == "succeeded"
        for reply in job["result"]["replies"]
    ]
    replies = {id_ for id_, job in outcome.jobs.items() if job["queue"] == "rps-replies-distant"}
    if sorted(named) != sorted(replies):
        violated("reply ids", f"{sorted(named)}, not {sorted(replies)}")
    for id_ in replies:
        state = outcome.jobs[id_]["state"]
        unsent = state == "succeeded" and not sent[id_] and not is_refused(outcome.jobs[id_])
        if sent[id_] > 1 or state not in ("succeeded", "in_doubt") or unsent:
            violated("sent", f"{id_} is {state}, and was sent {sent[id_]} times")
    for id_, job in outcome.jobs.items():
        if job["queue"] == TEXTS and job["state"] != "succeeded":
            violated("text not done", f"{id_}: {job}")


def is_refused(job: dict[str, Any]) -> bool:
    """Whether a reply was not sent because its phone had opted out by then."""
    result = job["result"]
    return isinstance(result, dict) and result.get("refused") == "opted_out"


def judge_pending(outcome: Outcome, model: Model) -> None:
    """What waits is what the model says, and both sides of it are there."""
    final = outcome.history.final
    owners = {one["id"]: phone for phone, one in outcome.records("rps-player").items()}
    sides: dict[str, set[tuple[str, str]]] = {"rps-thrown": set(), "rps-awaited": set()}
    for key in final:
        partition, opponent = shown_key(key)
        kind, _, player = partition.partition("#")
        if kind in sides:
            pair = (owners.get(player, player), owners.get(opponent, opponent))
            sides[kind].add(pair if kind == "rps-thrown" else pair[::-1])
    if not sides["rps-thrown"] == sides["rps-awaited"] == set(model.thrown):
        violated("pending", f"{sides}, not {model.thrown}")


@pytest.mark.simulate
def test_whatever_goes_wrong_the_game_goes_as_if_nothing_did(soak: bool) -> None:
    if soak:
        simulate_many(Playing, range(500))
        return
    for seed in range(SEEDS):
        simulate(Playing, seed)
