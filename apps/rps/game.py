"""The game as an application: texts are deduplicated, played in order, and replied to.

A text is a job of the queue `rps-texts`. Its idempotency key is the provider's id, and its order
key the player's number. Its changes and replies are one commit with its end. A reply is a job of
the provider's outbox: it is never lost, never sent for rolled-back work, and has a permanent id.
Throws are refereed, clocked and logged as a match.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from apps.rps import limits, rules, words
from apps.rps.duels import Duels
from apps.rps.numbers import normalise
from apps.rps.provider import Provider, Reply
from apps.rps.records import (
    ALL,
    TOP,
    Awaited,
    Consent,
    Line,
    Player,
    Score,
    Thrown,
    awaiting,
    consent_key,
    nick_key,
    player_key,
    scores_of,
    thrown_by,
)
from apps.rps.rules import Command, Outcome, RockPaperScissors, Wrong
from apps.rps.spelling import fold, is_nick
from onceward import App, BadInput, Job, Match, Receipt, Transaction, keys
from onceward import limits as core_limits
from onceward.web import Site

TEXTS = "rps-texts"
FAREWELLS = "rps-farewells"
_SHOWN = limits.LISTED_MAX
# Players wait, so jobs of a crashed node are taken over soon.
_LEASE_S = 10.0


class Text(msgspec.Struct, frozen=True):
    """A text from a player."""

    line: Line
    text: str
    keyword: str = ""
    """The kind of keyword that the provider has recognized and replied to: a key of `KEYWORDS`."""


class Farewell(msgspec.Struct, frozen=True):
    """A player who has left, whose games must be removed."""

    player: Player


class Game:
    """Rock, paper, scissors on an application, added before it starts; `accept` plays a text."""

    def __init__(
        self,
        app: App,
        providers: Iterable[Provider],
        *,
        country: str = "",
        throw_s: float | None = None,
    ) -> None:
        """`country` is the calling code of numbers without one. `throw_s` is the time limit to
        throw back; default: no limit. Raises `BadInput`."""
        self.app = app
        self.country = country
        self.duels = Duels(app, throw_s)
        app.game(RockPaperScissors(), late=self._late)
        self.providers = {provider.name: provider for provider in providers}
        # Keys are kept permanently, since a provider may repeat a text at any time. Another text
        # under the same id would be the provider's error; it is recorded, not rejected.
        play = app.handler(
            TEXTS,
            lease_s=_LEASE_S,
            attempts_max=5,
            retry_max_s=5,
            key_retention_s=None,
            mismatch="record",
            internal=True,
        )
        play(self._play)
        app.handler(FAREWELLS, lease_s=_LEASE_S, attempts_max=20, internal=True)(self._clear)
        for provider in self.providers.values():
            provider.join(self)
            app.outbox(
                outbox_of(provider.name),
                policy="hold",
                ask=self._ask if provider.asks else None,
                lease_s=_LEASE_S,
                attempts_max=12,
                rate=provider.rate,
                internal=True,
            )(self._send)

    async def accept(
        self,
        via: str,
        id_: str,
        sender: str,
        text: str,
        *,
        ours: str = "",
        keyword: str = "",
        tx: Any = None,
    ) -> Receipt:
        """Accept a text that a provider has delivered under an id. Durable when this returns;
        idempotent.

        `keyword` is STOP, START or HELP if the provider has recognized and answered such a word.
        Raises `BadInput` for an invalid number.
        """
        if via not in self.providers:
            raise BadInput(f"unknown provider {via!r} of texts")
        line = Line(self.providers[via].address(sender), via, ours)
        body = msgspec.to_builtins(Text(line, text[: limits.TEXT_CHARS_MAX], keyword))
        return await self.app.send(TEXTS, body, key=id_, caller=via, order_key=line.phone, tx=tx)

    def number(self, text: str) -> str:
        """The canonical form of a phone number. Raises `BadInput`."""
        return normalise(text, self.country)

    # Handlers.

    async def _play(self, job: Job) -> dict[str, Any]:
        text = msgspec.convert(job.body, Text)
        command = rules.read(rules.KEYWORDS.get(text.keyword, text.text))
        outcome = await self._options(job.tx, text, command)
        if outcome is not None:
            pass
        elif isinstance(command, Wrong):
            outcome = Outcome(says=[(text.line, command.reply)])
        else:
            outcome = await decide(job.tx, text.line, command, job.id, self.duels)
        return await self._carry_out(job, outcome)

    async def _options(
        self, tx: Transaction, text: Text, command: Command | Wrong
    ) -> Outcome | None:
        """Handle opting out and in by the rules of carriers, with no reply to a phone that has
        opted out. None if the text is for the game."""
        line = text.line
        if not line.is_phone:
            return None
        out = await is_out(tx, line.phone)
        name = command.name if isinstance(command, Command) else ""
        if name == "start":
            return rules.opt_in(line, out, tx.now_ms, reply=not text.keyword)
        if out or text.keyword == "HELP":
            return Outcome()
        if name == "quit":
            knows = self.providers[line.via].answers_keywords and rules.is_bare(text.text, name)
            me = await tx.get(player_key(line.phone), Player)
            confirm = not text.keyword and not knows
            return rules.opt_out(line, me, await _wins(tx, me), tx.now_ms, confirm=confirm)
        return None

    async def opt_out(self, phone: str, since_ms: int) -> None:
        """Mark a phone as opted out because its provider rejected a text sent at that time, unless
        it has opted in since. Its player leaves. Idempotent."""

        async def mark(tx: Transaction) -> None:
            consent = await tx.get(consent_key(phone), Consent)
            if consent is not None and (consent.out or consent.at_ms >= since_ms):
                return
            me = await tx.get(player_key(phone), Player)
            line = Line(phone, "") if me is None else me.line
            _write(tx, rules.opt_out(line, me, await _wins(tx, me), tx.now_ms, confirm=False))
            if me is not None:
                await self.app.send(FAREWELLS, msgspec.to_builtins(Farewell(me)), tx=tx)

        await self.app.run(mark)

    async def _clear(self, job: Job) -> dict[str, Any]:
        gone = msgspec.convert(job.body, Farewell).player
        cleared = await clear(job.tx, gone, self.duels)
        if cleared.records:
            cleared.leaves = gone  # there may be more
        return await self._carry_out(job, cleared)

    async def _late(self, tx: Transaction, match: Match) -> None:
        """End a match whose time limit to throw back has passed."""
        first, second = (match.begun.players[seat] for seat in rules.RockPaperScissors.seats)
        waiting = await tx.get((awaiting(second), first), Awaited)
        thrown = await tx.get((thrown_by(first), second), Thrown)
        if waiting is None or thrown is None:
            return  # one of them has left, and the records were removed
        found = await tx.get_many([player_key(waiting.phone), player_key(thrown.phone)], Player)
        [thrower, sleeper] = found
        if thrower is None or sleeper is None or (thrower.id, sleeper.id) != (first, second):
            return  # one of them has left, and the records are about to be removed
        outcome = rules.late(thrower, sleeper, await _scores(tx, thrower, sleeper))
        _write(tx, outcome)
        for line, said in outcome.says:
            await self.app.send(*_reply(line, said), tx=tx, order_key=line.phone)

    async def _carry_out(self, job: Job, outcome: Outcome) -> dict[str, Any]:
        """Write the outcome of a job in its transaction, which commits with the end of the job."""
        _write(job.tx, outcome)
        if outcome.leaves is not None:
            await job.send(FAREWELLS, msgspec.to_builtins(Farewell(outcome.leaves)))
        replies = []
        for line, said, confirms in [
            *((line, said, True) for line, said in outcome.confirms),
            *((line, said, False) for line, said in outcome.says),
        ]:
            receipt = await job.send(*_reply(line, said, confirms), order_key=line.phone)
            replies.append({"id": receipt.id, "to": line.phone})
        return {"replies": replies}

    def site(self) -> Site:
        """The site with the endpoints of providers."""
        routes = [route for provider in self.providers.values() for route in provider.routes()]
        return Site(routes, self)

    # Outboxes.

    async def _send(self, job: Job) -> Any:
        reply = msgspec.convert(job.body, Reply)
        began_ms = self.app.store.clock.now_ms()
        if not reply.confirms and await self.app.run(lambda tx: is_out(tx, reply.to)):
            return {"refused": "opted_out", "said": "the phone has opted out of texts"}
        result = await self._provider(job).send(job.id, reply)
        if isinstance(result, dict) and result.get("opted_out"):
            await self.opt_out(reply.to, began_ms)
        return result

    async def _ask(self, job: Job) -> Any:
        reply = msgspec.convert(job.body, Reply)
        return await self._provider(job).ask(job.id, reply, job.created_ms)

    def _provider(self, job: Job) -> Provider:
        return self.providers[job.queue.removeprefix(outbox_of(""))]


def outbox_of(provider: str) -> str:
    """The queue of a provider's replies."""
    return f"rps-replies-{provider}"


def _reply(line: Line, said: str, confirms: bool = False) -> tuple[str, Any]:
    """The queue and body of a reply."""
    reply = Reply(line.phone, line.ours, said, confirms)
    return outbox_of(line.via), msgspec.to_builtins(reply)


async def is_out(tx: Transaction, phone: str) -> bool:
    """Whether a phone has opted out of texts."""
    consent = await tx.get(consent_key(phone), Consent)
    return consent is not None and consent.out


def _write(tx: Transaction, outcome: Outcome) -> None:
    for key, value in outcome.records.items():
        if value is None:
            tx.delete(key)
        else:
            tx.put(key, value)


async def _scores(tx: Transaction, me: Player, them: Player) -> dict[keys.Key, Score | None]:
    keys = rules.score_keys(me, them)
    return dict(zip(keys, await tx.get_many(keys, Score), strict=True))


async def decide(tx: Transaction, line: Line, command: Command, id_: str, duels: Duels) -> Outcome:
    """Compute the outcome of a command from the records that it depends on and the rules."""
    me = await tx.get(player_key(line.phone), Player)
    if me is not None and me.line != line:
        me = Player(me.id, me.nick, line)  # replies go to the line of the last text
        tx.put(player_key(line.phone), me)
    match command.name:
        case "nick":
            owner = await tx.get(nick_key(fold(command.nick)), str)
            return rules.claim(line, me, owner, command.nick, id_)
        case "throw":
            return await _throw(tx, line, me, command, duels)
        case "quit":  # from a web page; phones opt out
            return rules.leave(line, me, await _wins(tx, me))
        case "start":
            return Outcome(says=[(line, words.HELP)])
        case "top":
            return Outcome(says=[(line, await _top(tx))])
    if me is None:
        return Outcome(says=[(line, words.NO_NICK)])
    told = await (_pending(tx, me) if command.name == "games" else _score(tx, me, command.nick))
    return Outcome(says=[(line, told)])


async def clear(tx: Transaction, gone: Player, duels: Duels) -> Outcome:
    """Remove some of the games of a player who has left; an empty outcome if none remain."""
    most = limits.CLEARED_MAX
    thrown = await tx.scan(thrown_by(gone.id), Thrown, limit=most)
    waiting = await tx.scan(awaiting(gone.id), Awaited, limit=most)
    scores = await tx.scan(scores_of(gone.id), Score, limit=most)
    for opponent in [row.key[1] for row in thrown] + [row.key[1] for row in waiting]:
        await duels.leave(tx, gone.id, opponent)
    opponents = await tx.get_many([player_key(row.value.phone) for row in waiting], Player)
    return rules.clear(
        gone,
        [row.key[1] for row in thrown],
        {row.key[1]: player for row, player in zip(waiting, opponents, strict=True)},
        [row.key[1] for row in scores],
    )


async def _throw(
    tx: Transaction, line: Line, me: Player | None, command: Command, duels: Duels
) -> Outcome:
    them = await _find(tx, command.nick)
    if me is None or them is None or me.id == them.id:
        return Outcome(says=[(line, rules.refusal(me, them, command))])
    mine, theirs = await duels.throw(tx, me.id, them.id, command.play)
    scores = {} if theirs is None else await _scores(tx, me, them)
    return rules.throw(me, them, command.play, mine, theirs, scores)


async def _find(tx: Transaction, nick: str) -> Player | None:
    """Return the player with a nickname."""
    if not is_nick(nick):
        return None
    phone = await tx.get(nick_key(fold(nick)), str)
    return None if phone is None else await tx.get(player_key(phone), Player)


async def _wins(tx: Transaction, me: Player | None) -> int:
    score = None if me is None else await tx.get((scores_of(me.id), ALL), Score)
    return 0 if score is None else score.wins


async def _pending(tx: Transaction, me: Player) -> str:
    thrown = await tx.scan(thrown_by(me.id), Thrown, limit=_SHOWN + 1)
    waiting = await tx.scan(awaiting(me.id), Awaited, limit=_SHOWN + 1)
    found = [(row.key[1], row.value.phone) for row in thrown]
    found += [(row.key[1], row.value.phone) for row in waiting]
    players = await tx.get_many([player_key(phone) for _, phone in found], Player)
    # A game with a player who has left may exist for a moment; it has ended.
    here = {
        id_ for (id_, _), player in zip(found, players, strict=True) if player and player.id == id_
    }
    return words.pending(
        rules.listed([row.value.at for row in thrown if row.key[1] in here], _SHOWN),
        rules.listed([row.value.nick for row in waiting if row.key[1] in here], _SHOWN),
    )


async def _score(tx: Transaction, me: Player, nick: str) -> str:
    most = core_limits.SCAN_RECORDS_MAX if nick else _SHOWN + 1
    # The current owner of a nickname comes before earlier ones.
    rows = await tx.scan(scores_of(me.id), Score, end=ALL, limit=most, reverse=bool(nick))
    versus = [row.value for row in rows]
    if not nick:
        whole = await tx.get((scores_of(me.id), ALL), Score)
        return rules.standing(whole, versus, _SHOWN)
    named = [score for score in versus if fold(score.nick) == fold(nick)]
    return rules.against(named, _SHOWN) or words.never_played(rules.quoted(nick))


async def _top(tx: Transaction) -> str:
    rows = await tx.scan(TOP, str, limit=_SHOWN)
    return rules.ranking([(row.key[1], row.value) for row in rows])
