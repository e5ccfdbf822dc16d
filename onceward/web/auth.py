"""Authentication and authorization: the caller of a request and its scopes.

Servers use API keys, of which only digests are stored; users have JSON Web Tokens. Both identify a
caller, which has separate idempotency keys and jobs. An API key has scopes, each an action and a
pattern of names, as in `send:orders` or `work:mail.*`. A token has grants, each an action and one
literal name (`onceward.tokens`), limited by the ceiling of its issuer. The capabilities declare the
actions (`onceward.capabilities`); the scope `all` includes every action on every name.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from onceward import limits
from onceward.api.operation import Operation
from onceward.callers import Caller, admit_label, admit_name
from onceward.capabilities import SCOPES
from onceward.errors import BadInput, OncewardError
from onceward.tokens import ALGORITHMS, HS256_BYTES_MIN
from onceward.web.grants import EVERYTHING, Claimed, Grants, Issuer, admit_scopes

KEY_PREFIX = "ow_"
_JWT = "jwt"
RSA_BITS_MIN = 2_048


class PortalPass(msgspec.Struct, frozen=True):
    """The contents of a portal token: whose endpoint it is for."""

    caller: str
    """The id of the owner of the record of the endpoint."""
    endpoint: str
    number: int
    """The number that the endpoint had when the token was created."""
    created_ms: int
    """When the endpoint was created: another one with its id has tokens of its own."""
    until_ms: int


@dataclass(frozen=True, slots=True)
class Access:
    """The caller of a request and its permissions."""

    caller: Caller
    grants: Grants
    until_ms: int | None = field(default=None, compare=False)
    """When its token expires."""
    claimed: Claimed = field(default=Claimed(), compare=False)
    """The grants that its token claims."""
    portal: PortalPass | None = field(default=None, compare=False)
    """For a portal token: the endpoint, which belongs to another caller."""
    _known: dict[tuple[str, str], bool] = field(default_factory=dict, compare=False, repr=False)

    @property
    def id(self) -> str:
        """The caller's id, under which its data is stored."""
        return self.caller.id

    @property
    def name(self) -> str:
        return self.caller.name

    @property
    def user(self) -> str:
        """The caller's user name in rooms and at tables."""
        return self.caller.user

    def may(self, action: str, name: str) -> bool:
        """Whether a grant covers an action on a name, or one that includes it."""
        asked = (action, name)
        allowed = self._known.get(asked)
        if allowed is None:
            assert action in SCOPES, f"no capability declares the scope {action!r}"
            actions = (action, *SCOPES[action].included_in)
            allowed = any(self.grants.cover(one, name) for one in actions)
            if len(self._known) < limits.SCOPES_KNOWN_MAX:
                self._known[asked] = allowed
        return allowed

    def insist(self, action: str, name: str) -> None:
        """Raise `not_allowed` if no grant covers it."""
        if not self.may(action, name):
            asked = f"{action}:{name[:100]}"
            if self.grants.ask(action, name):
                why = f"the token of {self.name!r} has {asked}, but its issuer's ceiling does not"
            else:
                why = f"{self.name!r} lacks the scope {asked}"
            raise OncewardError(why, code="not_allowed")

    def insist_any(self, operation: Operation[Any]) -> None:
        """Raise `not_allowed` if no grant is for an action of an operation, on any name."""
        asked = (operation.name, "")
        allowed = self._known.get(asked)
        if allowed is None:
            actions = operation.actions
            allowed = not actions or self.grants.for_any(*actions)
            self._known[asked] = allowed  # there are few operations
        if not allowed:
            raise OncewardError(
                f"{self.name!r} lacks the scope {operation.scope}; use a key or token with that "
                "scope",
                code="not_allowed",
            )

    def insist_all(self) -> None:
        """Raise `not_allowed` for a caller without the scope `all`."""
        if not self.grants.everything:
            raise OncewardError(
                f"{self.name!r} lacks the scope 'all'; use a key or token with that scope",
                code="not_allowed",
            )


DEVELOPER = Access(Caller("user", "", "developer"), EVERYTHING)
"""All callers in dev mode."""


class ApiKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An API key in the settings: its digest, not the key."""

    name: str
    """The caller's name."""
    digest: str
    """`sha256:` and 64 hex digits; `onceward token` prints it."""
    scopes: tuple[str, ...]


class JwtKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An issuer of tokens: only tokens signed with this key and algorithm are accepted."""

    algorithm: str
    key: str
    """The secret, or the public key as PEM."""
    audience: str
    issuer: str | None = None
    id: str | None = None
    """If given, only for tokens with this `kid`."""
    ceiling: tuple[str, ...] | None = None
    """The maximum grants of its tokens, as scopes with patterns: `write:board.*`. Default: all
    actions except `all`, `manage`, `operate` and `metrics`."""
    scopes: dict[str, tuple[str, ...]] = {}
    """For tokens of other identity providers: the grants of each value of the claim `scope`.

    `{sub}` is replaced by the user of the token. Values that are not listed grant nothing.
    """
    label: str = ""
    """Distinguishes the users of this issuer from those of others: part of their ids. Issuers with
    different names need different labels."""


class _Known(NamedTuple):
    """A prepared key of the settings."""

    key: JwtKey
    material: Any
    """The key in the form of its algorithm."""
    issuer: Issuer


class Auth:
    """Identifies callers by their credentials."""

    def __init__(
        self, api_keys: Iterable[ApiKey] = (), jwt_keys: Iterable[JwtKey] = (), *, dev: bool = False
    ) -> None:
        """With `dev`, there are no credentials and all callers have full access. Raises
        `bad_settings`."""
        self.dev = dev
        self._keys: dict[bytes, Access] = {}
        for key in api_keys:
            admit_caller(key.name)
            admit_scopes(key.scopes)
            self._keys[_digest(key)] = Access(Caller("key", "", key.name), Grants.of(key.scopes))
        self._jwt_keys = [_prepared(key) for key in jwt_keys]
        _admit_labels([known.key for known in self._jwt_keys])
        self.stored: Callable[[str], Access | None] = lambda digest: None
        """Looks up the caller of a key that is not in the settings, by its digest."""

    def caller(self, authorization: str | None, now_ms: int) -> Access:
        """Return the caller of the header Authorization. Raises `no_credentials`."""
        if self.dev:
            return DEVELOPER
        scheme, credentials = _parts(authorization)
        if scheme.lower() != "bearer" or not credentials:
            raise _refused("send an API key or a token: Authorization: Bearer …")
        if credentials.startswith(KEY_PREFIX):
            digest = sha256(credentials.encode())
            caller = self._keys.get(digest.digest()) or self.stored(digest.hexdigest())
            if caller is None:
                raise _refused("unknown API key")
            return caller
        known, claims = self._verified(credentials)
        return _access(known, claims, now_ms)

    def ids(self) -> set[str]:
        """The ids of callers with keys in the settings."""
        return {access.id for access in self._keys.values()}

    def credential(self, authorization: str | None) -> str:
        """The credential on which a session depends. Raises `no_credentials`.

        It is the digest of an API key, or `jwt` and the digest of the token's issuer, or `dev`.
        """
        if self.dev:
            return "dev"
        _, credentials = _parts(authorization)
        if credentials.startswith(KEY_PREFIX):
            return sha256(credentials.encode()).hexdigest()
        return _mark(self._verified(credentials)[0].key)

    def holder(self, credential: str, caller: Access) -> Access | None:
        """The current permissions of a caller that signed in with a credential; None if it was
        revoked."""
        if self.dev or credential == "dev":
            both = self.dev and credential == "dev"
            return replace(caller, grants=EVERYTHING, _known={}) if both else None
        if credential.startswith(_JWT):
            issuers = [one.issuer for one in self._jwt_keys if credential == _mark(one.key)]
            if not issuers:
                return None
            return replace(caller, grants=issuers[0].grants(caller.claimed, caller.name), _known={})
        return self._keys.get(bytes.fromhex(credential)) or self.stored(credential)

    def _verified(self, token: str) -> tuple[_Known, dict[str, Any]]:
        """The claims of a token, and the key that verified it. Raises `no_credentials`."""
        import jwt  # imported here because few need it and it loads slowly

        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError as error:
            raise _refused(
                f"this is neither a token ({error}) nor an API key, which begins with {KEY_PREFIX}"
            ) from error
        reason = "no key of this server matches its algorithm and kid"
        for known in self._jwt_keys:
            key = known.key
            if header.get("alg") != key.algorithm or key.id not in (None, header.get("kid")):
                continue
            try:
                claims = jwt.decode(
                    token,
                    known.material,
                    algorithms=[key.algorithm],
                    audience=key.audience,
                    issuer=key.issuer,
                    options={
                        "require": ["exp", "aud", "sub"],
                        # Checked below with the server's clock.
                        "verify_exp": False,
                        "verify_nbf": False,
                        "verify_iat": False,
                    },
                )
                return known, claims
            except jwt.PyJWTError as error:
                reason = str(error)
        raise _refused(f"invalid token: {reason}")


def _parts(authorization: str | None) -> tuple[str, str]:
    """Scheme and credentials of the header Authorization."""
    scheme, _, credentials = (authorization or "").partition(" ")
    return scheme, credentials.strip()


def _mark(key: JwtKey) -> str:
    """The mark of sessions by tokens of this issuer: issuers can share a secret and have different
    ceilings."""
    which = msgspec.json.encode((key.algorithm, key.key, key.audience, key.issuer, key.id))
    return f"{_JWT}:{sha256(which).hexdigest()}"


def _access(known: _Known, claims: dict[str, Any], now_ms: int) -> Access:
    expires, begins = claims["exp"], claims.get("nbf", 0)
    if not (_is_time(expires) and _is_time(begins)):
        raise _refused("the token's exp and nbf must be numbers of seconds")
    slack_ms = limits.TOKEN_SLACK_MS
    if expires * 1000 + slack_ms <= now_ms:
        raise BadInput("the token has expired; connect with a new one", code="token_expired")
    if begins * 1000 - slack_ms > now_ms:
        raise _refused("the token is not valid yet")
    name = claims["sub"]
    if not isinstance(name, str):
        raise _refused("the token's sub must be text")
    try:
        admit_caller(name)
        claimed = known.issuer.read(claims)
    except OncewardError as error:
        raise _refused(f"invalid token: {error.message}") from error
    until_ms = int(expires * 1000) + slack_ms
    caller = Caller("user", known.key.label, name)
    return Access(caller, known.issuer.grants(claimed, name), until_ms, claimed)


def _is_time(value: Any) -> bool:
    # Excludes NaN and infinity, which compare like valid times.
    return isinstance(value, int | float) and abs(value) <= limits.KEY_NUMBER_MAX


def admit_caller(name: str) -> None:
    """Raise `bad_settings` for an invalid caller name."""
    try:
        admit_name(name)
    except BadInput as error:
        raise OncewardError(error.message, code="bad_settings") from error


def _admit_labels(known: Iterable[JwtKey]) -> None:
    """Raise `bad_settings` if users of two issuers could be confused."""
    issuers: dict[str, str | None] = {}
    for key in known:
        try:
            admit_label(key.label)
        except BadInput as error:
            raise OncewardError(error.message, code="bad_settings") from error
        if issuers.setdefault(key.label, key.issuer) != key.issuer:
            raise OncewardError(
                f"the issuers {issuers[key.label]!r} and {key.issuer!r} have the same label "
                f"{key.label!r}; give each its own `label`, so that their users have "
                "different ids",
                code="bad_settings",
            )


def digest_of(key: str) -> str:
    """The digest of an API key, as in the settings."""
    return f"sha256:{sha256(key.encode()).hexdigest()}"


def _digest(key: ApiKey) -> bytes:
    kind, _, digits = key.digest.partition(":")
    try:
        digest = bytes.fromhex(digits)
    except ValueError:
        digest = b""
    if kind != "sha256" or len(digest) != sha256().digest_size:
        raise OncewardError(
            f"the digest of the API key of {key.name!r} is not sha256: and 64 hex digits; "
            "create one with `onceward token`",
            code="bad_settings",
        )
    return digest


def _prepared(key: JwtKey) -> _Known:
    """Prepare a key for its algorithm. Raises `bad_settings`."""
    if key.algorithm not in ALGORITHMS:
        raise OncewardError(
            f"unsupported algorithm {key.algorithm!r} for tokens; use {', '.join(ALGORITHMS)}",
            code="bad_settings",
        )
    if key.algorithm == "HS256" and len(key.key.encode()) < HS256_BYTES_MIN:
        raise OncewardError(
            f"a secret for tokens must have at least {HS256_BYTES_MIN} bytes, not "
            f"{len(key.key.encode())}",
            code="bad_settings",
        )
    import jwt

    try:
        material: Any = jwt.get_algorithm_by_name(key.algorithm).prepare_key(key.key)
    except Exception as error:  # several types, from two libraries
        wanted = "a secret" if key.algorithm == "HS256" else "a public key as PEM"
        raise OncewardError(
            f"the key for {key.algorithm} is not {wanted}: {error}. Give another key",
            code="bad_settings",
        ) from error
    if hasattr(material, "private_bytes"):
        raise OncewardError(
            f"the key for {key.algorithm} is a private key; give the public key, which is enough "
            "to verify tokens, and keep the private key with the issuer",
            code="bad_settings",
        )
    if key.algorithm == "RS256" and material.key_size < RSA_BITS_MIN:
        raise OncewardError(
            f"the key for RS256 must have at least {RSA_BITS_MIN} bits, not {material.key_size}",
            code="bad_settings",
        )
    return _Known(key, material, Issuer(key.ceiling, key.scopes))


def _refused(why: str) -> BadInput:
    return BadInput(why, code="no_credentials")
