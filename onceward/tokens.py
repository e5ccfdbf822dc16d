"""Signed tokens (JWT) for the users of an application.

Your back end signs a token for each of its users. The token contains the user's name and
permissions, and a page or device sends it to the Onceward server:

    token = tokens.sign(secret, user="ann", write=["board.7"], audience="boards")

A grant is an action and the name of one resource. Names are literal: `*`, spaces and quotes have
no meaning, so a name may come from a request. Check first that the user may use that resource.
Signing with HS256 needs the standard library only.
"""

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

import msgspec

from onceward import callers, limits
from onceward.capabilities import SCOPES
from onceward.clock import Clock, new_clock
from onceward.errors import BadInput, OncewardError

__all__ = ["Grant", "sign"]  # for applications

ALGORITHMS = ("HS256", "RS256", "ES256", "EdDSA")
HS256_BYTES_MIN = 32
CLAIM = "authorization_details"
"""The claim that holds grants (RFC 9396)."""
TYPE: Literal["onceward"] = "onceward"
"""The `type` of Onceward's entries in the claim. Other entries are for other services."""
ALL: Literal["all"] = "all"
"""The action that includes every other action on every name. Its grant has no name."""

ACTIONS = tuple(SCOPES)


class Grant(NamedTuple):
    """Permission for an action on the resource with exactly this name."""

    action: str
    name: str = ""


class Names(TypedDict, total=False):
    """Names of resources by action: `read=["board.7"]` is `Grant("read", "board.7")`.

    For editors and type checkers: `sign` accepts every action in `ACTIONS`.
    """

    send: Iterable[str]
    work: Iterable[str]
    manage: Iterable[str]
    lock: Iterable[str]
    timer: Iterable[str]
    endpoint: Iterable[str]
    portal: Iterable[str]
    read: Iterable[str]
    write: Iterable[str]
    room: Iterable[str]
    play: Iterable[str]
    lane: Iterable[str]
    table: Iterable[str]
    operate: Iterable[str]
    metrics: Iterable[str]


class Detail(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry of `authorization_details`: actions on one resource."""

    type: Literal["onceward"]
    actions: tuple[str, ...]
    identifier: str = ""


def sign(
    key: str | bytes,
    *,
    user: str,
    grants: Iterable[Grant] = (),
    expires_s: int = 3_600,
    audience: str = "onceward",
    issuer: str | None = None,
    key_id: str | None = None,
    algorithm: str = "HS256",
    clock: Clock | None = None,
    **names: Unpack[Names],
) -> str:
    """Sign a token for a user of your application.

    Args:
        key: The secret (HS256, 32 bytes or more), or the private key as PEM.
        user: Who the token is for (`sub`).
        grants: What the user may do. `read=[…]`, `write=[…]` and so on are short for
            `grants=[Grant("read", …), …]`.
        expires_s: Lifetime in seconds.
        audience: The `audience` of the issuer in the server's settings.
        issuer: The `issuer` in the server's settings, if set.
        key_id: The `id` of the key in the server's settings, if set.
        algorithm: HS256, RS256, ES256 or EdDSA.
        clock: The time source. Default: the system clock.

    Raises:
        BadInput: The user (`bad_name`), a name or an action (`bad_value`) is not valid.
        OncewardError: The key does not fit the algorithm (`bad_settings`).
    """
    callers.admit_name(user)
    if expires_s < 1:
        raise _bad(f"expires_s is {expires_s}; use at least 1")
    now_s = (clock or new_clock()).now_ms() // 1_000
    claims: dict[str, Any] = {
        "sub": user,
        "aud": audience,
        "iat": now_s,
        "exp": now_s + expires_s,
        CLAIM: details([*grants, *_named(names)]),
    }
    if issuer is not None:
        claims["iss"] = issuer
    header = {"alg": algorithm, "typ": "JWT"}
    if key_id is not None:
        header["kid"] = key_id
    text = b".".join(_base64(msgspec.json.encode(part)) for part in (header, claims))
    return b".".join((text, _base64(_signature(algorithm, key, text)))).decode()


def details(grants: Iterable[Grant]) -> list[Detail]:
    """Grants as `authorization_details`. Raises `bad_value`."""
    by_name: dict[str, list[str]] = {}
    for grant in grants:
        admit(grant)
        actions = by_name.setdefault(grant.name, [])
        if grant.action not in actions:
            actions.append(grant.action)
    if sum(map(len, by_name.values())) > limits.GRANTS_MAX:
        raise _bad(f"a token has at most {limits.GRANTS_MAX} grants")
    return [Detail(TYPE, tuple(actions), name) for name, actions in by_name.items()]


def grants_in(claim: Any) -> tuple[Grant, ...]:
    """The grants in a decoded `authorization_details` claim. Raises `bad_value`.

    An entry of our type with an unknown field is rejected: the issuer may mean a restriction.
    """
    if not isinstance(claim, list) or not all(isinstance(one, dict) for one in claim):
        raise _bad(f"{CLAIM} is not a list of objects")
    found: list[Grant] = []
    for entry in claim:
        if not isinstance(entry.get("type"), str):
            raise _bad(f"{CLAIM} has an entry without a type")
        if entry["type"] != TYPE:
            continue
        try:
            detail = msgspec.convert(entry, Detail)
        except msgspec.ValidationError as error:
            raise _bad(f"{CLAIM} has an invalid entry: {error}") from error
        found += [Grant(action, detail.identifier) for action in detail.actions]
    if len(found) > limits.GRANTS_MAX:
        raise _bad(f"a token has at most {limits.GRANTS_MAX} grants")
    for grant in found:
        admit(grant)
    return tuple(found)


def admit(grant: Grant) -> None:
    """Raise `bad_value` for a grant with an unknown action or without a name."""
    action, name = grant
    if action == ALL:
        if name:
            raise _bad(f"the grant {ALL!r} must not have a name, but has {name[:100]!r}")
    elif action not in ACTIONS:
        known = ", ".join((*ACTIONS, ALL))
        raise _bad(f"unknown action {str(action)[:100]!r}; use one of {known}")
    else:
        _admit_text(f"name for {action!r}", name)


def _named(names: Names) -> list[Grant]:
    found: list[Grant] = []
    for action, listed in names.items():
        if isinstance(listed, str | bytes):
            raise _bad(f"{action} must be a list of names; use {action}=[{listed[:100]!r}]")
        found += [Grant(action, name) for name in listed]  # type: ignore[attr-defined]
    return found


def _admit_text(what: str, text: Any) -> None:
    try:
        valid = isinstance(text, str) and bool(text.encode())
    except UnicodeEncodeError:  # a lone surrogate
        valid = False
    if not valid:
        raise _bad(f"the {what} is {str(text)[:100]!a}; use non-empty, valid Unicode text")


def _signature(algorithm: str, key: str | bytes, text: bytes) -> bytes:
    if algorithm not in ALGORITHMS:
        raise OncewardError(
            f"unsupported algorithm {algorithm!r}; use {', '.join(ALGORITHMS)}",
            code="bad_settings",
        )
    secret = key.encode() if isinstance(key, str) else key
    if algorithm == "HS256":
        if len(secret) < HS256_BYTES_MIN:
            raise OncewardError(
                f"the secret has {len(secret)} bytes; use at least {HS256_BYTES_MIN}",
                code="bad_settings",
            )
        return hmac.digest(secret, text, sha256)
    import jwt  # only for private keys: its import is slow

    signer = jwt.get_algorithm_by_name(algorithm)
    try:
        return signer.sign(text, signer.prepare_key(secret))
    except Exception as error:  # of several kinds, from two libraries
        raise OncewardError(
            f"cannot sign with {algorithm}: {error}; use its private key as PEM",
            code="bad_settings",
        ) from error


def _base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def _bad(message: str) -> BadInput:
    return BadInput(message, code="bad_value")
