"""Caller names: the identity under which a request is made.

The application itself, an API key and a user with a token are different callers, even if they have
the same name. Records store the id of a caller: one line of text with its kind, the label of its
issuer, and its name:

- the application: the empty text
- a sender that the application names: `app:twilio`
- an API key: `key:billing`
- a user of the only issuer: `user:alice`
- a user of an issuer labelled `partner`: `user@partner:alice`
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, get_args

from onceward import keys, limits
from onceward.errors import BadInput

Kind = Literal["app", "key", "user"]
KINDS: Final[tuple[str, ...]] = get_args(Kind)
_ID = re.compile(rf"({'|'.join(KINDS)})(?:@([a-z0-9-]+))?:(.*)", re.DOTALL)
_LABEL = re.compile(rf"[a-z0-9-]{{1,{limits.ISSUER_CHARS_MAX}}}")

# Control characters, line separators, and characters that change the direction of text. A name
# with them could look like another name in logs, on terminals and on pages.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Caller:
    """Identity of a caller. Two callers are the same only if all four fields are equal."""

    kind: Kind
    issuer: str
    """Label of the issuer of a user's token; empty if there is only one issuer."""
    name: str
    namespace: str = ""

    @property
    def id(self) -> str:
        """The stored form. The application itself has the empty id."""
        return _id(self)

    @property
    def user(self) -> str:
        """The name in rooms and at tables: a user's own name, or the id where a plain name would be
        ambiguous."""
        plain = self.kind == "user" and not self.issuer and _ID.fullmatch(self.name) is None
        return keys.qualified(self.namespace, self.name) if plain else self.id

    @staticmethod
    @lru_cache(maxsize=1_024)
    def parse(id_: str) -> "Caller":
        """The caller with this id. Raises `BadInput`."""
        namespace, name = keys.unqualified(id_)
        if not name:
            return Caller("app", "", "", namespace)
        match = _ID.fullmatch(name)
        if match is None or not match[3]:
            raise BadInput(
                f"{id_[:200]!r} is not the id of a caller; use key:NAME, user:NAME or app:NAME",
                code="bad_name",
            )
        kind: Any = match[1]
        return Caller(kind, match[2] or "", match[3], namespace)

    @staticmethod
    def of_user(user: str) -> "Caller":
        """The caller that takes part under this name: the inverse of `user`."""
        namespace, name = keys.unqualified(user)
        if _ID.fullmatch(name) is not None:
            return Caller.parse(user)
        return Caller("user", "", name, namespace)


APPLICATION: Final = Caller("app", "", "")
"""The application itself."""


def caller_id(caller: Caller | str) -> str:
    """The id of a caller. Text is the name of a sender that the application distinguishes. Raises
    `BadInput`."""
    if type(caller) is str:
        if not caller:
            return ""
        admit_name(caller)
        return Caller("app", "", caller).id
    if type(caller) is not Caller:
        raise BadInput(
            f"caller must be text or a Caller, not {type(caller).__name__}", code="bad_name"
        )
    return caller.id


def admit_name(name: Any) -> None:
    """Raise `BadInput` for an invalid name of a caller."""
    keys.admit_name(name, "a caller's name", limits.CALLER_BYTES_MAX)
    if _CONTROL.search(name):
        raise BadInput(
            f"a caller's name may not contain control characters: {name[:100]!a}; remove them",
            code="bad_name",
        )


def admit_label(label: Any) -> None:
    """Raise `BadInput` for an invalid label of an issuer."""
    if type(label) is not str or (label and _LABEL.fullmatch(label) is None):
        raise BadInput(
            f"the label of an issuer must have up to {limits.ISSUER_CHARS_MAX} characters of a-z, "
            f"0-9 and -, not {str(label)[:100]!r}",
            code="bad_name",
        )


@lru_cache(maxsize=1_024)
def _id(caller: Caller) -> str:
    if caller.kind == "app" and not caller.name:
        return keys.qualified(caller.namespace, "") if caller.namespace else ""
    issuer = f"@{caller.issuer}" if caller.issuer else ""
    return keys.qualified(caller.namespace, f"{caller.kind}{issuer}:{caller.name}")
