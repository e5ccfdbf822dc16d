"""Grants: literal scopes of tokens, and patterns in the server's configuration.

Names in a token are data and match themselves only. Patterns (`send:orders.*`, as in `fnmatch`)
come from configuration: the scopes of API keys, the ceiling of an issuer, and the grants that an
issuer's settings give to a value of the `scope` claim.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import msgspec

from onceward.capabilities import SCOPES
from onceward.errors import BadInput, OncewardError
from onceward.tokens import ACTIONS, ALL, CLAIM, Grant, grants_in

USER = "{sub}"
"""Stands for the user of a token in the patterns of an issuer, as literal text."""


class Pattern(NamedTuple):
    """An action on all names that match."""

    action: str
    names: str

    @classmethod
    def of(cls, scope: str) -> "Pattern":
        action, _, names = scope.partition(":")
        return cls(action, names)

    def covers(self, action: str, name: str) -> bool:
        return self == _EVERYTHING or (self.action == action and fnmatchcase(name, self.names))

    def for_user(self, user: str) -> "Pattern":
        """This pattern with the user in place of `{sub}`, whatever characters it contains."""
        if USER not in self.names:
            return self
        literal = "".join(f"[{char}]" if char in "*?[" else char for char in user)
        return Pattern(self.action, self.names.replace(USER, literal))


_EVERYTHING = Pattern(ALL, "")
# A token of an issuer without a ceiling is for users.
_DEFAULT_CEILING = tuple(Pattern(one.action, "*") for one in SCOPES.values() if not one.operators)


@dataclass(frozen=True, slots=True)
class Grants:
    """What one caller may do."""

    named: frozenset[Grant] = frozenset()
    patterns: tuple[Pattern, ...] = ()
    ceiling: tuple[Pattern, ...] = (_EVERYTHING,)
    """A grant counts only if one of these covers it."""

    @classmethod
    def of(cls, scopes: Sequence[str]) -> "Grants":
        """The grants of an API key."""
        return cls(patterns=tuple(map(Pattern.of, scopes)))

    @property
    def everything(self) -> bool:
        """Whether they include all actions on all names."""
        asked = Grant(ALL) in self.named or _EVERYTHING in self.patterns
        return asked and _EVERYTHING in self.ceiling

    def cover(self, action: str, name: str) -> bool:
        if self.everything:
            return True
        return self.ask(action, name) and any(one.covers(action, name) for one in self.ceiling)

    def for_any(self, *actions: str) -> bool:
        """Whether there is a grant for one of these actions, on any name."""
        if self.everything:
            return True
        asked = {action for action, _ in (*self.named, *self.patterns)}
        return not asked.isdisjoint(actions)

    def ask(self, action: str, name: str) -> bool:
        """Whether a grant is for this, under any ceiling."""
        return Grant(action, name) in self.named or any(
            one != _EVERYTHING and one.covers(action, name) for one in self.patterns
        )


EVERYTHING = Grants.of((ALL,))


class Claimed(msgspec.Struct, frozen=True):
    """What a token claims. Sessions store it, so that the issuer's present settings count."""

    grants: tuple[Grant, ...] = ()
    scopes: tuple[str, ...] = ()
    """Values of the `scope` claim that the issuer's settings map to grants."""


class Issuer:
    """What the tokens of one issuer can grant."""

    def __init__(
        self,
        ceiling: Sequence[str] | None = None,
        scopes: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Without a ceiling: on all names all actions but `all` and those for operators.
        `scopes` maps values of the `scope` claim to grants. Raises `bad_settings`."""
        self._ceiling = _DEFAULT_CEILING if ceiling is None else _admitted(ceiling)
        self._scopes = {value: _admitted(given) for value, given in (scopes or {}).items()}
        possible = {one.action for one in self._ceiling}
        for value, given in self._scopes.items():
            beyond = {one.action for one in given} - possible
            if beyond and ALL not in possible:
                raise OncewardError(
                    f"the scope {value!r} maps to {min(beyond)!r}, which the issuer's ceiling does "
                    "not cover; add it to `ceiling`",
                    code="bad_settings",
                )

    def read(self, claims: Mapping[str, Any]) -> Claimed:
        """What verified claims ask for. Raises `bad_value`."""
        grants = grants_in(claims.get(CLAIM, []))
        if not self._scopes:
            return Claimed(grants)
        scope = claims.get("scope", "")
        if not isinstance(scope, str):
            raise BadInput("the scope claim is not text", code="bad_value")
        return Claimed(grants, tuple(value for value in scope.split() if value in self._scopes))

    def grants(self, claimed: Claimed, user: str) -> Grants:
        """What these claims of a user are worth."""
        given = [one for value in claimed.scopes for one in self._scopes.get(value, ())]
        return Grants(
            frozenset(claimed.grants),
            tuple(one.for_user(user) for one in given),
            tuple(one.for_user(user) for one in self._ceiling),
        )


def admit_scopes(scopes: Sequence[str]) -> None:
    """Raise `bad_settings` for a scope with an unknown action or without a pattern."""
    for scope in scopes:
        action, _, names = scope.partition(":")
        if scope != ALL and (action not in ACTIONS or not names):
            raise OncewardError(
                f"{scope!r} is not a scope; use {ALL}, or an action ({', '.join(ACTIONS)}), a "
                "colon and a pattern of names, as in send:orders.*",
                code="bad_settings",
            )


def _admitted(scopes: Sequence[str]) -> tuple[Pattern, ...]:
    admit_scopes(scopes)
    for scope in scopes:
        # A bracket that is open there would take the user's characters for a set.
        if "[" in scope.rpartition(USER)[0]:
            raise OncewardError(f"{scope!r} has '[' before {USER}; use * or ?", code="bad_settings")
    return tuple(map(Pattern.of, scopes))
