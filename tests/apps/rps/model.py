"""The game in the plainest way: everything in dictionaries, one text after the other.

It shares its words with the real one, and nothing else. Commands come as they are meant, so that
it need not read texts.
"""

from collections import Counter

from apps.rps import words

Says = list[tuple[str, str]]

BEATS = {("rock", "scissors"), ("paper", "rock"), ("scissors", "paper")}


class Model:
    def __init__(self) -> None:
        self.nicks: dict[str, str] = {}
        """Phones to nicknames."""
        self.lives: Counter[str] = Counter()
        """How many nicknames a phone has given up."""
        self.thrown: dict[tuple[str, str], str] = {}
        self.wins: Counter[str] = Counter()
        self.games = 0
        self.changed_hands = 0
        self.had: dict[str, str] = {}
        """Who had a nickname last."""
        self.out: set[str] = set()
        """Phones that have opted out."""
        self.owed: dict[tuple[str, str], int] = {}
        """Who is yet to hear that whom has left, by phone and nickname; and the life they had."""

    def text(self, phone: str, command: tuple[str, ...]) -> Says:
        """What comes of a text, to whom."""
        nick = self.nicks.get(phone)
        name, *rest = command
        if phone in self.out:
            if name != "start":
                return []
            self.out.remove(phone)
            return [(phone, words.BACK)]
        if name == "start":
            return [(phone, words.HELP)]
        if name == "quit":
            self._quit(phone, nick)
            return [(phone, words.OPTED_OUT)]
        if name == "nick":
            return [(phone, self._claim(phone, nick, rest[0]))]
        if nick is None:
            return [(phone, words.NO_NICK)]
        if name == "games":
            return [(phone, self._pending(phone))]
        play, at = rest
        them = {nick.casefold(): phone for phone, nick in self.nicks.items()}.get(at.casefold())
        if them is None:
            return [(phone, words.no_such_opponent(at))]
        if them == phone:
            return [(phone, words.ONESELF)]
        return self._throw(phone, them, play)

    def left(self, phone: str, said: str) -> None:
        """Someone hears that someone has left."""
        nick = next(
            nick for who, nick in self.owed if who == phone and said == words.they_left(nick)
        )
        assert self.owed.pop((phone, nick)) == self.lives[phone]
        assert phone in self.nicks

    def still_owed(self) -> list[tuple[str, str]]:
        return [pair for pair, life in self.owed.items() if life == self.lives[pair[0]]]

    def _claim(self, phone: str, nick: str | None, wanted: str) -> str:
        if nick is not None:
            return words.has_nick(nick)
        if wanted.casefold() in {taken.casefold() for taken in self.nicks.values()}:
            return words.nick_taken(wanted)
        self.nicks[phone] = wanted
        self.changed_hands += self.had.get(wanted.casefold(), phone) != phone
        self.had[wanted.casefold()] = phone
        return words.welcome(wanted)

    def _quit(self, phone: str, nick: str | None) -> None:
        self.out.add(phone)
        if nick is None:
            return
        del self.nicks[phone]
        self.lives[phone] += 1
        self.wins.pop(phone, None)
        for by, at in list(self.thrown):
            if phone in (by, at):
                del self.thrown[by, at]
                if at == phone:
                    self.owed[by, nick] = self.lives[by]

    def _throw(self, me: str, them: str, play: str) -> Says:
        mine, theirs = self.nicks[me], self.nicks[them]
        if (me, them) in self.thrown:
            return [(me, words.thrown_already(self.thrown[me, them], theirs))]
        if (them, me) not in self.thrown:
            self.thrown[me, them] = play
            return [(me, words.you_wait(play, theirs)), (them, words.they_wait(mine))]
        other = self.thrown.pop((them, me))
        self.games += 1
        if play == other:
            return [(me, words.tie(play, theirs)), (them, words.tie(play, mine))]
        if (play, other) in BEATS:
            self.wins[me] += 1
            return [(me, words.win(play, other, theirs)), (them, words.loss(other, play, mine))]
        self.wins[them] += 1
        return [(me, words.loss(play, other, theirs)), (them, words.win(other, play, mine))]

    def _pending(self, phone: str) -> str:
        """Names are sorted: the order of the real ones is that of ids."""
        for_whom = sorted(self.nicks[at] for by, at in self.thrown if by == phone)
        who = sorted(self.nicks[by] for by, at in self.thrown if at == phone)
        return words.pending(", ".join(for_whom), ", ".join(who))
