"""The rules: commands in texts and their outcomes, as pure functions on values and records.

A function with an outcome gets the current records that it depends on, and returns the records to
put and delete and the texts to send. It reads no clock and generates no ids.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.rps import words
from apps.rps.records import (
    ALL,
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
    top_key,
    top_wins,
)
from apps.rps.spelling import fold, is_nick, letters_of, words_of
from onceward import DRAW, Rules, keys
from onceward import Outcome as GameOutcome

PLAYS = ("rock", "paper", "scissors")
BEATS = {"rock": "scissors", "paper": "rock", "scissors": "paper"}
FIRST, SECOND = "first", "second"
"""The seats: the first throw, and the throw back."""
COMMANDS = {
    "nick": ("nick", "n"),
    "throw": ("throw", "t", "play", "p"),
    # The words with which carriers opt phones out, and in again.
    "quit": ("quit", "stop", "stopall", "unsubscribe", "cancel", "end", "revoke", "optout"),
    "start": ("start", "unstop"),
    "help": ("help", "info", "?"),
    "games": ("games",),
    "score": ("score",),
    "top": ("top",),
}
"""All commands, and the words for each."""
OPTIONS = ("quit", "start")
"""The commands that opt a phone out and in."""
KEYWORDS = {"STOP": "stop", "START": "start", "HELP": "help"}
"""The command for each kind of keyword that a provider reports to have recognised."""
_NAMES = {word: name for name, words_ in COMMANDS.items() for word in words_}
_QUOTED_CHARS = 32


class RockPaperScissors(Rules):
    """Both throw, hidden from each other."""

    name = "rps"
    seats = (FIRST, SECOND)
    simultaneous = True

    def start(self, seed: str) -> dict[str, str]:
        return {}

    def moves(self, thrown: dict[str, str], seat: str) -> tuple[str, ...]:
        return PLAYS

    def apply(self, thrown: dict[str, str], seat: str, play: Any) -> dict[str, str]:
        return {**thrown, seat: play}

    def outcome(self, thrown: dict[str, str]) -> GameOutcome | None:
        if not thrown:
            return None
        first, second = thrown[FIRST], thrown[SECOND]
        if first == second:
            return DRAW
        return GameOutcome((FIRST if BEATS[first] == second else SECOND,))


@dataclass(frozen=True, slots=True)
class Command:
    """A command in a text."""

    name: str
    play: str = ""
    nick: str = ""
    """A nickname: to take, to throw at, or to look up."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A text without an executable command, and the reply."""

    reply: str


@dataclass(slots=True)
class Outcome:
    """The outcome of a text: records to put (or, with None, to delete), and texts to send."""

    records: dict[keys.Key, Any] = field(default_factory=dict)
    says: list[tuple[Line, str]] = field(default_factory=list)
    confirms: list[tuple[Line, str]] = field(default_factory=list)
    """Texts that are sent even to phones that have opted out: the confirmation of the opt-out."""
    leaves: Player | None = None
    """A player who has left, and whose games must be removed."""


# Parsing.


def read(text: str) -> Command | Wrong:
    """Parse a text. The first word decides, in any case; see `spelling` for words."""
    found = words_of(text)
    if not found:
        return Wrong(words.HELP)
    name = _read_option(text, found) or _NAMES.get(found[0].casefold())
    rest = found[1:]
    if name is None:
        return Wrong(words.unknown(quoted(found[0])))
    if name == "help":
        topic = _NAMES.get(rest[0].casefold(), "") if rest else ""
        return Wrong(words.TOPICS.get(topic, words.HELP))
    if name == "nick":
        return _read_nick(rest)
    if name == "throw":
        return _read_throw(rest)
    if name == "score" and rest:
        return Command(name, nick=rest[0])
    return Command(name)


def _read_option(text: str, found: list[str]) -> str | None:
    """The option of a text that spells its word in parts, such as "opt out" and "S.T.O.P."."""
    for said in (letters_of(text), letters_of(" ".join(found[:2]))):
        if (name := _NAMES.get(said)) in OPTIONS:
            return name
    return None


def is_bare(text: str, name: str) -> bool:
    """Whether a text is a word for a command and nothing else, as providers recognize it."""
    return text.strip().casefold() in COMMANDS[name]


def _read_nick(rest: list[str]) -> Command | Wrong:
    if not rest:
        return Wrong(words.NICK_MISSING)
    if len(rest) > 1 or not is_nick(rest[0]):
        return Wrong(words.NICK_MALFORMED)
    return Command("nick", nick=rest[0])


def _read_throw(rest: list[str]) -> Command | Wrong:
    if len(rest) != 2:
        return Wrong(words.THROW_MISSING)
    play = read_play(rest[0])
    if play is None:
        return Wrong(words.no_such_play(quoted(rest[0])))
    return Command("throw", play=play, nick=rest[1])


def read_play(word: str) -> str | None:
    """The play that begins with a word, or None."""
    word = word.casefold()
    return next((play for play in PLAYS if word and play.startswith(word)), None)


def quoted(word: str) -> str:
    """The start of a user's text, for a reply."""
    return word if len(word) <= _QUOTED_CHARS else word[:_QUOTED_CHARS] + words.MORE


# Outcomes.


def claim(line: Line, me: Player | None, owner: str | None, nick: str, id_: str) -> Outcome:
    """Take a nickname; `owner` is the phone that has it, `id_` the id of the new player."""
    if me is not None:
        return Outcome(says=[(line, words.has_nick(me.nick))])
    if owner is not None:
        return Outcome(says=[(line, words.nick_taken(nick))])
    return Outcome(
        {player_key(line.phone): Player(id_, nick, line), nick_key(fold(nick)): line.phone},
        [(line, words.welcome(nick) if line.is_phone else words.entered(nick))],
    )


def refusal(me: Player | None, them: Player | None, command: Command) -> str:
    """Why a throw is not possible: a player is missing."""
    if me is None:
        return words.NO_NICK
    return words.no_such_opponent(quoted(command.nick)) if them is None else words.ONESELF


def throw(
    me: Player,
    them: Player,
    play: str,
    mine: str | None,
    theirs: str | None,
    scores: Mapping[keys.Key, Score | None],
) -> Outcome:
    """Throw at an opponent: the first of two throws waits, the second ends the game.

    `mine` and `theirs` are the waiting plays, and `scores` the records of `score_keys`. Both
    players are written unchanged, since their lists change.
    """
    if mine is not None:
        return Outcome(says=[(me.line, words.thrown_already(mine, them.nick))])
    heads = {player_key(player.line.phone): player for player in (me, them)}
    if theirs is None:
        records = {
            **heads,
            (thrown_by(me.id), them.id): Thrown(them.nick, them.line.phone),
            (awaiting(them.id), me.id): Awaited(me.nick, me.line.phone),
        }
        says = [(me.line, words.you_wait(play, them.nick)), (them.line, words.they_wait(me.nick))]
        return Outcome(dict(records), says)
    ended = Outcome({**heads, **_over(them, me)})
    for one, other, ours, others in ((me, them, play, theirs), (them, me, theirs, play)):
        won = (BEATS[ours] == others) - (BEATS[others] == ours)
        ended.says.append((one.line, _result(won, ours, others, other.nick)))
        ended.records |= _counted(one, other, won, scores)
    return ended


def late(thrower: Player, sleeper: Player, scores: Mapping[keys.Key, Score | None]) -> Outcome:
    """End a game whose second player has not thrown back in time, and so loses."""
    heads = {player_key(player.line.phone): player for player in (thrower, sleeper)}
    ended = Outcome({**heads, **_over(thrower, sleeper)})
    ended.says = [
        (thrower.line, words.win_by_time(sleeper.nick)),
        (sleeper.line, words.loss_by_time(thrower.nick)),
    ]
    ended.records |= _counted(thrower, sleeper, 1, scores)
    ended.records |= _counted(sleeper, thrower, -1, scores)
    return ended


def _over(thrower: Player, other: Player) -> dict[keys.Key, Any]:
    """Remove a waiting throw."""
    return {(thrown_by(thrower.id), other.id): None, (awaiting(other.id), thrower.id): None}


def _result(won: int, mine: str, theirs: str, nick: str) -> str:
    if not won:
        return words.tie(mine, nick)
    return (words.win if won > 0 else words.loss)(mine, theirs, nick)


def score_keys(me: Player, them: Player) -> list[keys.Key]:
    """The keys of the scores that a game between two changes."""
    return [
        (scores_of(me.id), ALL),
        (scores_of(me.id), them.id),
        (scores_of(them.id), ALL),
        (scores_of(them.id), me.id),
    ]


def _counted(
    one: Player, other: Player, won: int, scores: Mapping[keys.Key, Score | None]
) -> dict[keys.Key, Any]:
    """The records of one player after a game that is won (1), tied (0) or lost (-1)."""
    whole, versus = (scores_of(one.id), ALL), (scores_of(one.id), other.id)
    records: dict[keys.Key, Any] = {}
    for key, nick in ((whole, ""), (versus, other.nick)):
        score = scores.get(key) or Score()
        records[key] = Score(
            score.wins + (won > 0), score.losses + (won < 0), score.ties + (won == 0), nick
        )
    if won > 0:
        wins = records[whole].wins
        records[top_key(wins - 1, one.id)] = None
        records[top_key(wins, one.id)] = one.nick
    return records


def leave(line: Line, me: Player | None, wins: int) -> Outcome:
    """Quit: player, nickname and rank are removed immediately. The player's id is unused then, so
    the games have ended; `clear` removes them, a few at a time."""
    if me is None:
        return Outcome(says=[(line, words.NO_NICK)])
    return Outcome(_gone(me, wins), [(line, words.gone(me.nick))], leaves=me)


def _gone(me: Player, wins: int) -> dict[keys.Key, Any]:
    gone: dict[keys.Key, Any] = {player_key(me.line.phone): None, nick_key(fold(me.nick)): None}
    if wins:
        gone[top_key(wins, me.id)] = None
    return gone


def opt_out(line: Line, me: Player | None, wins: int, now_ms: int, *, confirm: bool) -> Outcome:
    """Stop: the player, if any, leaves, and the phone gets no further texts except a confirmation,
    unless the provider sends one."""
    records = {} if me is None else _gone(me, wins)
    records[consent_key(line.phone)] = Consent(True, now_ms)
    confirms = [(line, words.OPTED_OUT)] if confirm else []
    return Outcome(records, confirms=confirms, leaves=me)


def opt_in(line: Line, out: bool, now_ms: int, *, reply: bool) -> Outcome:
    """Start: a phone that has opted out may receive texts again."""
    says = [(line, words.BACK if out else words.HELP)] if reply else []
    records = {consent_key(line.phone): Consent(False, now_ms)} if out else {}
    return Outcome(dict(records), says)


def clear(
    gone: Player, thrown: list[str], waiting: dict[str, Player | None], scores: list[str]
) -> Outcome:
    """Remove games of a player who has left.

    These are throws at opponents, throws of waiting opponents (they get a text if they still play),
    and scores, all by the opponents' ids.
    """
    cleared = Outcome()
    for opponent in thrown:
        cleared.records[thrown_by(gone.id), opponent] = None
        cleared.records[awaiting(opponent), gone.id] = None
    for opponent, player in waiting.items():
        cleared.records[awaiting(gone.id), opponent] = None
        cleared.records[thrown_by(opponent), gone.id] = None
        if player is not None and player.id == opponent:
            cleared.says.append((player.line, words.they_left(gone.nick)))
    for opponent in scores:
        cleared.records[scores_of(gone.id), opponent] = None
    return cleared


def listed(names: list[str], most: int) -> str:
    """A list of names; beyond `most`, only the first ones."""
    shown = ", ".join(names[:most])
    return f"{shown}, {words.MORE}" if len(names) > most else shown


def standing(whole: Score | None, versus: list[Score], most: int) -> str:
    """The reply about all finished games of a player."""
    if whole is None:
        return words.NO_GAMES
    return f"{words.in_all(whole)} {against(versus, most)}".rstrip()


def against(versus: list[Score], most: int) -> str:
    """The reply about games by opponent; beyond `most`, only the first ones."""
    said = [words.against(score) for score in versus[:most]]
    return " ".join([*said, words.MORE] if len(versus) > most else said)


def ranking(rows: list[tuple[str, str]]) -> str:
    """The reply about the best players, from the sort keys of `top_key` and nicknames."""
    named = [f"{place}. {nick} ({top_wins(key)})" for place, (key, nick) in enumerate(rows, 1)]
    return ", ".join(named) or words.NOBODY_ON_TOP
