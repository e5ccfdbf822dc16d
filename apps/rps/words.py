"""All texts of the game, in plain ASCII where possible: such texts are cheaper to send."""

from apps.rps.records import Score

_OPTIONS = "Reply STOP to opt out, HELP for help."
HELP = (
    "Rock, paper, scissors by text: nick NAME, throw PLAY NICK, games, score, top. "
    f"Text help throw to learn more. {_OPTIONS}"
)
OPTED_OUT = (
    "Rock, paper, scissors: you have opted out and get no further texts. Your nickname and your "
    "games were removed. Reply START to come back."
)
BACK = f"Rock, paper, scissors: you get texts again. Text nick NAME to play. {_OPTIONS}"
TOPICS = {
    "nick": "nick NAME gives you a nickname, so that others can throw at you: one word of "
    "letters, digits and _, up to 32 of them. Short: n NAME.",
    "throw": "throw PLAY NICK throws rock, paper or scissors at someone; the first letter "
    "is enough. Short: t r NICK. Also: play, p.",
    "quit": "quit removes you, your nickname and your games, and opts you out of all texts "
    "until you text start. Also: stop, end, cancel, unsubscribe.",
    "start": "start opts you in again after quit. Then take a nickname: nick NAME. Also: unstop.",
    "games": "games lists who is waiting for you, and for whom you are waiting.",
    "score": "score lists how many games you have won, lost and tied, in total and by opponent; "
    "score NICK for one opponent.",
    "top": "top lists the players with the most wins.",
}

NICK_MISSING = "Which nickname? Text: nick NAME"
NICK_MALFORMED = "A nickname is one word of up to 32 letters, digits and _."
THROW_MISSING = "Throw what at whom? Text: throw PLAY NICK, such as: throw rock Ann"
NO_NICK = "You have no nickname yet. Text: nick NAME"
ONESELF = "You cannot throw at yourself."
NOTHING_PENDING = "No games are waiting."
NO_GAMES = "You have not finished a game yet."
NOBODY_ON_TOP = "No wins yet."
MORE = "..."


def unknown(word: str) -> str:
    return f"Unknown command {word}. Text help to see all commands."


def no_such_play(word: str) -> str:
    return f"You cannot throw {word}. Throw rock, paper or scissors."


def has_nick(nick: str) -> str:
    return f"You are {nick} already. To take another nickname, text quit, then start."


def nick_taken(nick: str) -> str:
    return f"The nickname {nick} is taken. Try another one."


def welcome(nick: str) -> str:
    return f"You are {nick}. To play, text: throw rock NICK. {_OPTIONS}"


def entered(nick: str) -> str:
    """The welcome at a web page."""
    return f"You are {nick}. Throw at someone by their nickname."


def no_such_opponent(nick: str) -> str:
    return f"Unknown player {nick}."


def thrown_already(play: str, nick: str) -> str:
    return f"You have already thrown {play} at {nick}. {nick} has not thrown yet."


def you_wait(play: str, nick: str) -> str:
    return f"You throw {play} and wait for {nick}."


def they_wait(nick: str) -> str:
    return f"{nick} has thrown at you and is waiting. Text: throw PLAY {nick}"


def tie(play: str, nick: str) -> str:
    return f"You and {nick} both throw {play}: a tie."


def win(mine: str, theirs: str, nick: str) -> str:
    return f"You win: your {mine} beats the {theirs} of {nick}."


def loss(mine: str, theirs: str, nick: str) -> str:
    return f"You lose: the {theirs} of {nick} beats your {mine}."


def win_by_time(nick: str) -> str:
    return f"You win: {nick} has not thrown back in time."


def loss_by_time(nick: str) -> str:
    return f"You lose: you have not thrown back at {nick} in time."


def gone(nick: str) -> str:
    return f"You left, and the nickname {nick} is free again. Take a nickname to come back."


def they_left(nick: str) -> str:
    return f"{nick} has left. Your game was cancelled."


def pending(waited_for: str, waiting: str) -> str:
    """The reply about waiting games; each argument is a list of names, or empty."""
    said = []
    if waited_for:
        said.append(f"You are waiting for {waited_for}.")
    if waiting:
        said.append(f"Waiting for you: {waiting}.")
    return " ".join(said) or NOTHING_PENDING


def tally(score: Score) -> str:
    ties = "1 tie" if score.ties == 1 else f"{score.ties} ties"
    return f"{score.wins} won, {score.losses} lost, {ties}"


def in_all(score: Score) -> str:
    return f"Total: {tally(score)}."


def against(score: Score) -> str:
    return f"Against {score.nick}: {tally(score)}."


def never_played(nick: str) -> str:
    return f"You have not finished a game against {nick} yet."
