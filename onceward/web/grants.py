"""Grants: literal scopes of tokens, and patterns in the server's configuration.

Names in a token are data and match only themselves. Patterns (`send:orders.*`, as in `fnmatch`)
come from configuration: the scopes of API keys, the ceiling of an issuer, and its grants for values
of the `scope` claim.
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
"""The placeholder for a token's user in the patterns of an issuer; replaced by literal text."""


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
        """The pattern with `{sub}` replaced by the user, with special characters escaped."""
        if USER not in self.names:
            return self
        literal = "".join(f"[{char}]" if char in "*?[" else char for char in user)
        return Pattern(self.action, self.names.replace(USER, literal))


_EVERYTHING = Pattern(ALL, "")
# Tokens of an issuer without a ceiling are for users, not operators.
_DEFAULT_CEILING = tuple(Pattern(one.action, "*") for one in SCOPES.values() if not one.operators)


@dataclass(frozen=True, slots=True)
class Grants:
    """The permissions of one caller."""

    named: frozenset[Grant] = frozenset()
    patterns: tuple[Pattern, ...] = ()
    ceiling: tuple[Pattern, ...] = (_EVERYTHING,)
    """A grant is valid only if one of these patterns covers it."""

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
        """Whether there is a grant for this, regardless of the ceiling."""
        return Grant(action, name) in self.named or any(
            one != _EVERYTHING and one.covers(action, name) for one in self.patterns
        )


EVERYTHING = Grants.of((ALL,))


class Claimed(msgspec.Struct, frozen=True):
    """The claims of a token. Sessions store them, so that the issuer's current settings apply."""

    grants: tuple[Grant, ...] = ()
    scopes: tuple[str, ...] = ()
    """Values of the `scope` claim, which the issuer's settings map to grants."""


class Issuer:
    """The permissions of tokens of one issuer."""

    def __init__(
        self,
        ceiling: Sequence[str] | None = None,
        scopes: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`ceiling` defaults to all actions on all names except `all` and those of operators.
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
        """Read the grants from verified claims. Raises `bad_value`."""
        grants = grants_in(claims.get(CLAIM, []))
        if not self._scopes:
            return Claimed(grants)
        scope = claims.get("scope", "")
        if not isinstance(scope, str):
            raise BadInput(
                f"the scope claim must be text, not {type(scope).__name__}", code="bad_value"
            )
        return Claimed(grants, tuple(value for value in scope.split() if value in self._scopes))

    def grants(self, claimed: Claimed, user: str) -> Grants:
        """The effective grants of these claims for a user."""
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
        # An open bracket before the user would read the user's characters as a set.
        if "[" in scope.rpartition(USER)[0]:
            raise OncewardError(f"{scope!r} has '[' before {USER}; use * or ?", code="bad_settings")
    return tuple(map(Pattern.of, scopes))
