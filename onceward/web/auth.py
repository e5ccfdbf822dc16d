"""Authentication and authorization: the caller of a request and its scopes.

Servers have API keys, of which only digests are kept; people have JSON Web Tokens. Both name
their caller, whose dedupe keys and jobs are its own. An API key has scopes, an action and a pattern
of names, as in `send:orders` or `work:mail.*`; a token has grants, an action and one literal name
(`onceward.tokens`), which count where the ceiling of its issuer covers them. The capabilities
declare the actions (`onceward.capabilities`); the scope `all` includes every action on every name.
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


@dataclass(frozen=True, slots=True)
class Access:
    """What the caller of a request may do."""

    caller: Caller
    grants: Grants
    until_ms: int | None = field(default=None, compare=False)
    """When its token expires."""
    claimed: Claimed = field(default=Claimed(), compare=False)
    """What its token claims."""
    _known: dict[tuple[str, str], bool] = field(default_factory=dict, compare=False, repr=False)

    @property
    def id(self) -> str:
        """The caller's id: what is its own is stored under it."""
        return self.caller.id

    @property
    def name(self) -> str:
        return self.caller.name

    @property
    def user(self) -> str:
        """The name under which the caller takes part in rooms and at tables."""
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
                why = f"the token of {self.name!r} has {asked}, but its issuer's ceiling has not"
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
                f"{self.name!r} lacks the scope {operation.scope}", code="not_allowed"
            )

    def insist_all(self) -> None:
        """Raise `not_allowed` for who may not do everything."""
        if not self.grants.everything:
            raise OncewardError(f"{self.name!r} lacks the scope 'all'", code="not_allowed")


DEVELOPER = Access(Caller("user", "", "developer"), EVERYTHING)
"""Everyone, in dev mode."""


class ApiKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An API key as the settings have it: not the key, but its digest."""

    name: str
    """The caller's."""
    digest: str
    """`sha256:` and 64 hex digits; `onceward token` prints it."""
    scopes: tuple[str, ...]


class JwtKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose tokens are taken: signed with this key by this algorithm, and by no other."""

    algorithm: str
    key: str
    """The secret, or the public key as PEM."""
    audience: str
    issuer: str | None = None
    id: str | None = None
    """If given, only for tokens that name it as their `kid`."""
    ceiling: tuple[str, ...] | None = None
    """What its tokens can grant at most, as scopes with patterns: `write:board.*`. Without it, all
    actions but `all`, `manage`, `operate` and `metrics`."""
    scopes: dict[str, tuple[str, ...]] = {}
    """For the tokens of other identity providers: what a value of the claim `scope` grants. The
    user of the token stands in place of `{sub}`. Values that are not listed grant nothing."""
    label: str = ""
    """Tells the users of this issuer from those of other issuers: part of their ids. Issuers
    with different names need different labels."""


class _Known(NamedTuple):
    """A key of the settings, ready for use."""

    key: JwtKey
    material: Any
    """What its algorithm makes of it."""
    issuer: Issuer


class Auth:
    """Tells callers by their credentials."""

    def __init__(
        self, api_keys: Iterable[ApiKey] = (), jwt_keys: Iterable[JwtKey] = (), *, dev: bool = False
    ) -> None:
        """With `dev` there are none, and everyone may do everything. Raises `bad_settings`."""
        self.dev = dev
        self._keys: dict[bytes, Access] = {}
        for key in api_keys:
            admit_caller(key.name)
            admit_scopes(key.scopes)
            self._keys[_digest(key)] = Access(Caller("key", "", key.name), Grants.of(key.scopes))
        self._jwt_keys = [_prepared(key) for key in jwt_keys]
        _admit_labels([known.key for known in self._jwt_keys])
        self.stored: Callable[[str], Access | None] = lambda digest: None
        """Who has a key that the settings do not have, by its digest."""

    def caller(self, authorization: str | None, now_ms: int) -> Access:
        """The caller by the header Authorization. Raises `no_credentials`."""
        if self.dev:
            return DEVELOPER
        scheme, credentials = _parts(authorization)
        if scheme.lower() != "bearer" or not credentials:
            raise _refused("send an API key or a token: Authorization: Bearer …")
        if credentials.startswith(KEY_PREFIX):
            digest = sha256(credentials.encode())
            caller = self._keys.get(digest.digest()) or self.stored(digest.hexdigest())
            if caller is None:
                raise _refused("this API key is not known")
            return caller
        known, claims = self._verified(credentials)
        return _access(known, claims, now_ms)

    def ids(self) -> set[str]:
        """The callers that have keys in the settings, by id."""
        return {access.id for access in self._keys.values()}

    def credential(self, authorization: str | None) -> str:
        """What a session of a caller depends on: the digest of its key, or `jwt` and the digest of
        the issuer of its token, or `dev`. Raises `no_credentials`."""
        if self.dev:
            return "dev"
        _, credentials = _parts(authorization)
        if credentials.startswith(KEY_PREFIX):
            return sha256(credentials.encode()).hexdigest()
        return _mark(self._verified(credentials)[0].key)

    def holder(self, credential: str, caller: Access) -> Access | None:
        """What a caller who has signed in with it may do by now; None: it is none any more."""
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
        """What a token claims, and the key that it is signed with. Raises `no_credentials`."""
        import jwt  # here, since few need it and it takes long to load

        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError as error:
            raise _refused(
                f"this is no token ({error}), and no API key, which begins with {KEY_PREFIX}"
            ) from error
        reason = "no key of this server fits its algorithm and kid"
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
                        # By the clock of the server, below.
                        "verify_exp": False,
                        "verify_nbf": False,
                        "verify_iat": False,
                    },
                )
                return known, claims
            except jwt.PyJWTError as error:
                reason = str(error)
        raise _refused(f"the token is refused: {reason}")


def _parts(authorization: str | None) -> tuple[str, str]:
    """Scheme and credentials of the header Authorization."""
    scheme, _, credentials = (authorization or "").partition(" ")
    return scheme, credentials.strip()


def _mark(key: JwtKey) -> str:
    """What tells that a session is by a token of this issuer: one secret may be of several, with
    ceilings of their own."""
    which = msgspec.json.encode((key.algorithm, key.key, key.audience, key.issuer, key.id))
    return f"{_JWT}:{sha256(which).hexdigest()}"


def _access(known: _Known, claims: dict[str, Any], now_ms: int) -> Access:
    expires, begins = claims["exp"], claims.get("nbf", 0)
    if not (_is_time(expires) and _is_time(begins)):
        raise _refused("the token's exp and nbf must be numbers of seconds")
    slack_ms = limits.TOKEN_SLACK_MS
    if expires * 1000 + slack_ms <= now_ms:
        raise BadInput("the token has expired: connect with a new one", code="token_expired")
    if begins * 1000 - slack_ms > now_ms:
        raise _refused("the token is not valid yet")
    name = claims["sub"]
    if not isinstance(name, str):
        raise _refused("the token's sub must be text")
    try:
        admit_caller(name)
        claimed = known.issuer.read(claims)
    except OncewardError as error:
        raise _refused(f"the token is refused: {error.message}") from error
    until_ms = int(expires * 1000) + slack_ms
    caller = Caller("user", known.key.label, name)
    return Access(caller, known.issuer.grants(claimed, name), until_ms, claimed)


def _is_time(value: Any) -> bool:
    # NaN is later than nothing, and infinity than everything.
    return isinstance(value, int | float) and abs(value) <= limits.KEY_NUMBER_MAX


def admit_caller(name: str) -> None:
    """Raise `bad_settings` for text that cannot be a caller's name."""
    try:
        admit_name(name)
    except BadInput as error:
        raise OncewardError(error.message, code="bad_settings") from error


def _admit_labels(known: Iterable[JwtKey]) -> None:
    """Raise `bad_settings` if users of two issuers could be taken for each other."""
    issuers: dict[str, str | None] = {}
    for key in known:
        try:
            admit_label(key.label)
        except BadInput as error:
            raise OncewardError(error.message, code="bad_settings") from error
        if issuers.setdefault(key.label, key.issuer) != key.issuer:
            raise OncewardError(
                f"the issuers {issuers[key.label]!r} and {key.issuer!r} have the same label "
                f"{key.label!r}; give each a `label` of its own, so that a user of one is never "
                "taken for a user of the other",
                code="bad_settings",
            )


def digest_of(key: str) -> str:
    """The digest of an API key, as the settings have it."""
    return f"sha256:{sha256(key.encode()).hexdigest()}"


def _digest(key: ApiKey) -> bytes:
    kind, _, digits = key.digest.partition(":")
    try:
        digest = bytes.fromhex(digits)
    except ValueError:
        digest = b""
    if kind != "sha256" or len(digest) != sha256().digest_size:
        raise OncewardError(
            f"the digest of the API key of {key.name!r} is not sha256: and 64 hex digits",
            code="bad_settings",
        )
    return digest


def _prepared(key: JwtKey) -> _Known:
    """A key with what its algorithm makes of it. Raises `bad_settings`."""
    if key.algorithm not in ALGORITHMS:
        raise OncewardError(
            f"{key.algorithm!r} is not taken for tokens: {', '.join(ALGORITHMS)} are",
            code="bad_settings",
        )
    if key.algorithm == "HS256" and len(key.key.encode()) < HS256_BYTES_MIN:
        raise OncewardError(
            f"a secret for tokens has at least {HS256_BYTES_MIN} bytes", code="bad_settings"
        )
    import jwt

    try:
        material: Any = jwt.get_algorithm_by_name(key.algorithm).prepare_key(key.key)
    except Exception as error:  # of several kinds, from two libraries
        wanted = "a secret" if key.algorithm == "HS256" else "a public key as PEM"
        raise OncewardError(
            f"the key for {key.algorithm} is not {wanted}: {error}", code="bad_settings"
        ) from error
    if hasattr(material, "private_bytes"):
        raise OncewardError(
            f"the key for {key.algorithm} is a private one: give the public key, which is enough "
            "to check tokens, and keep that one with who signs them",
            code="bad_settings",
        )
    if key.algorithm == "RS256" and material.key_size < RSA_BITS_MIN:
        raise OncewardError(
            f"the key for RS256 has at least {RSA_BITS_MIN} bits, not {material.key_size}",
            code="bad_settings",
        )
    return _Known(key, material, Issuer(key.ceiling, key.scopes))


def _refused(why: str) -> BadInput:
    return BadInput(why, code="no_credentials")
