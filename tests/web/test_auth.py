"""Who may do what, by which credentials."""

import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from jwt.utils import base64url_encode

from onceward import limits
from onceward.callers import Caller
from onceward.errors import BadInput, OncewardError
from onceward.tokens import ACTIONS
from onceward.web.auth import DEVELOPER, Access, ApiKey, Auth, JwtKey, digest_of
from onceward.web.grants import EVERYTHING, Grants

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
SECRET = "s" * 32
DETAILS = [{"type": "onceward", "actions": ["send", "lock"], "identifier": "orders"}]
CLAIMS = {
    "sub": "ann",
    "aud": "onceward",
    "exp": NOW_S + 60,
    "scope": "all send:*",
    "authorization_details": DETAILS,
}

GENERATE: dict[str, Callable[[], Any]] = {
    "RS256": lambda: rsa.generate_private_key(65_537, 2_048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}
PRIVATE = {algorithm: generate() for algorithm, generate in GENERATE.items()}


def public(private: Any) -> str:
    key = private.public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def private_text(private: Any) -> str:
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def verifier(algorithm: str = "HS256", key: str = SECRET, **options: Any) -> Auth:
    return Auth(jwt_keys=[JwtKey(algorithm, key, "onceward", **options)])


def token(
    key: Any = SECRET, algorithm: str = "HS256", kid: str | None = None, **claims: Any
) -> str:
    said = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return jwt.encode(said, key, algorithm, headers={"kid": kid} if kid else None)


def by_hand(header: dict[str, Any], claims: str | dict[str, Any], signature: bytes = b"") -> str:
    """A token that no library would make."""
    text = claims if isinstance(claims, str) else json.dumps(claims)
    parts = [json.dumps(header).encode(), text.encode(), signature]
    return b".".join(base64url_encode(part) for part in parts).decode()


def refusal(auth: Auth, credentials: str | None, now_ms: int = NOW_MS) -> str:
    with pytest.raises(BadInput) as refused:
        auth.caller(credentials, now_ms)
    message = refused.value.message
    # Who has an expired token can get another one, and is told so.
    expired = message.startswith("the token has expired")
    assert refused.value.code == ("token_expired" if expired else "no_credentials")
    return message


def unsettled(*api_keys: ApiKey, jwt_keys: tuple[JwtKey, ...] = ()) -> str:
    with pytest.raises(OncewardError) as refused:
        Auth(api_keys, jwt_keys)
    assert refused.value.code == "bad_settings"
    return refused.value.message


def test_an_api_key_tells_who_calls() -> None:
    auth = Auth([ApiKey("ann", digest_of("ow_1"), ("all",)), ApiKey("bob", digest_of("ow_2"), ())])
    assert auth.caller("Bearer ow_1", NOW_MS) == Access(Caller("key", "", "ann"), EVERYTHING)
    assert auth.caller("bearer   ow_2 ", NOW_MS).name == "bob"
    assert "unknown API key" in refusal(auth, "Bearer ow_3")


@pytest.mark.parametrize(
    "credentials", [None, "", "Bearer", "Bearer ", "ow_1", "Basic ow_1", "Bearer\tow_1"]
)
def test_whoever_shows_no_credentials_is_refused(credentials: str | None) -> None:
    auth = Auth([ApiKey("ann", digest_of("ow_1"), ("all",))])
    assert "Authorization: Bearer" in refusal(auth, credentials)


def test_without_any_keys_nobody_may_call_but_in_dev_mode() -> None:
    assert refusal(Auth(), "Bearer ow_1")
    assert refusal(Auth(), f"Bearer {token()}")
    assert Auth(dev=True).caller(None, NOW_MS) is DEVELOPER


def test_a_token_tells_who_calls_and_what_they_may_do() -> None:
    caller = verifier().caller(f"Bearer {token()}", NOW_MS)
    assert caller.name == "ann"
    assert caller.may("send", "orders")
    assert caller.may("lock", "orders")
    assert not caller.may("work", "orders")
    assert not caller.may("send", "others")
    none = verifier().caller(f"Bearer {token(authorization_details=None)}", NOW_MS)
    assert not none.may("send", "orders")


@pytest.mark.parametrize("scope", ["all", "send:x", "read:x all", "manage:*", ["all"]])
def test_the_scope_claim_grants_nothing_unless_it_is_mapped(scope: Any) -> None:
    asked = f"Bearer {token(scope=scope, authorization_details=None)}"
    for options in ({}, {"ceiling": ("all",)}, {"ceiling": ("send:*",)}):
        caller = verifier(**options).caller(asked, NOW_MS)  # type: ignore[arg-type]
        assert not any(caller.may(action, "x") for action in ACTIONS)
        assert not caller.grants.everything
    mapped = verifier(scopes={"orders": ("send:orders.*",)})
    asked = f"Bearer {token(scope='openid orders', authorization_details=None)}"
    assert mapped.caller(asked, NOW_MS).may("send", "orders.new")
    assert not mapped.caller(asked, NOW_MS).may("send", "x")


def test_a_token_cannot_appoint_operators_unless_its_issuer_may() -> None:
    entries = [
        {"type": "onceward", "actions": ["all"]},
        {"type": "onceward", "actions": ["manage", "operate", "send"], "identifier": "orders"},
    ]
    asked = f"Bearer {token(authorization_details=entries)}"
    caller = verifier().caller(asked, NOW_MS)
    with pytest.raises(OncewardError, match="lacks the scope 'all'"):
        caller.insist_all()
    assert caller.may("send", "orders")
    assert not caller.may("send", "mail")
    for action in ("manage", "operate"):
        with pytest.raises(OncewardError, match="but its issuer's ceiling does not"):
            caller.insist(action, "orders")  # type: ignore[arg-type]
    verifier(ceiling=("all",)).caller(asked, NOW_MS).insist_all()
    managed = verifier(ceiling=("manage:orders",)).caller(asked, NOW_MS)
    assert managed.may("manage", "orders")
    assert not managed.may("send", "orders")
    assert not managed.grants.everything


def test_each_issuer_has_a_ceiling_of_its_own() -> None:
    auth = Auth(
        jwt_keys=[
            JwtKey("HS256", "a" * 32, "onceward", ceiling=("send:orders",)),
            JwtKey("HS256", "b" * 32, "onceward", ceiling=("lock:*",)),
        ]
    )
    first, second = (auth.caller(f"Bearer {token(one * 32)}", NOW_MS) for one in "ab")
    assert (first.may("send", "orders"), first.may("lock", "orders")) == (True, False)
    assert (second.may("send", "orders"), second.may("lock", "orders")) == (False, True)


@pytest.mark.parametrize("algorithm", PRIVATE)
def test_a_token_may_be_signed_with_a_private_key(algorithm: str) -> None:
    private = PRIVATE[algorithm]
    auth = verifier(algorithm, public(private))
    assert auth.caller(f"Bearer {token(private, algorithm)}", NOW_MS).name == "ann"
    other = GENERATE[algorithm]()
    assert "ignature" in refusal(auth, f"Bearer {token(other, algorithm)}")


def confused() -> str:
    """Signed with the public key as if it were a secret."""
    pem = public(PRIVATE["RS256"])
    header, claims = {"alg": "HS256", "typ": "JWT"}, json.dumps(CLAIMS)
    text = b".".join(base64url_encode(p) for p in (json.dumps(header).encode(), claims.encode()))
    hmac = jwt.get_algorithm_by_name("HS256")
    return f"{text.decode()}.{base64url_encode(hmac.sign(text, pem.encode())).decode()}"


def test_a_token_signed_with_the_public_key_as_a_secret_is_refused() -> None:
    auth = verifier("RS256", public(PRIVATE["RS256"]))
    assert "no key of this server matches" in refusal(auth, f"Bearer {confused()}")


BAD_TOKENS: dict[str, tuple[str, str]] = {
    "no signature": (by_hand({"alg": "none"}, CLAIMS), "no key of this server matches"),
    "no signature, spelt otherwise": (by_hand({"alg": "nOnE"}, CLAIMS), "no key of this"),
    "no algorithm": (by_hand({}, CLAIMS, b"x"), "token"),
    "algorithm of another kind": (by_hand({"alg": ["HS256"]}, CLAIMS, b"x"), "token"),
    "wrong signature": (token("x" * 32), "ignature"),
    "signature left out": (token().rpartition(".")[0] + ".", "ignature"),
    "other claims": (
        ".".join([token().split(".")[0], token(sub="eve").split(".")[1], token().split(".")[2]]),
        "ignature",
    ),
    "other algorithm": (token("s" * 64, "HS512"), "no key of this server matches"),
    "expired": (token(exp=NOW_S - 6), "expired"),
    "no expiry": (token(exp=None), "exp"),
    "expiry that is text": (token(exp=str(NOW_S + 60)), "exp and nbf must be numbers"),
    "expiry that never comes": (token(exp=float("inf")), "exp and nbf must be numbers"),
    "expiry that is no number": (token(exp=float("nan")), "exp and nbf must be numbers"),
    "expiry beyond all numbers": (token(exp=10**400), "exp and nbf must be numbers"),
    "begin beyond all numbers": (token(nbf=-(10**400)), "exp and nbf must be numbers"),
    "not valid yet": (token(nbf=NOW_S + 6), "not valid yet"),
    "wrong audience": (token(aud="others"), "udience"),
    "no audience": (token(aud=None), "aud"),
    "no subject": (token(sub=None), "sub"),
    "empty subject": (token(sub=""), "a caller's name"),
    "subject that is no text": (token(sub="\ud800"), "a caller's name"),
    "long subject": (token(sub="x" * 257), "a caller's name"),
    "subject of another kind": (token(sub=["ann"]), "ubject must be a string"),
    "grants of another kind": (token(authorization_details="all"), "not a list of objects"),
    "grants of an unknown action": (
        token(authorization_details=[{**DETAILS[0], "actions": ["sned"]}]),
        "unknown action 'sned'",
    ),
    "grants with a restriction": (
        token(authorization_details=[{**DETAILS[0], "locations": ["https://elsewhere"]}]),
        "invalid entry",
    ),
    "not a token": ("hello", "nor an API key, which begins with ow_"),
    "not a token either": ("a.b.c", "this is neither a token"),
    "claims that are no object": (by_hand({"alg": "HS256"}, "[]", b"x"), "token"),
}


@pytest.mark.parametrize("what", BAD_TOKENS)
def test_a_bad_token_is_refused(what: str) -> None:
    bad, why = BAD_TOKENS[what]
    assert why in refusal(verifier(), f"Bearer {bad}")


def test_clocks_may_be_a_little_apart() -> None:
    auth, slack_ms = verifier(), limits.TOKEN_SLACK_MS
    last_ms = CLAIMS["exp"] * 1000 + slack_ms - 1  # type: ignore[operator]
    assert auth.caller(f"Bearer {token()}", last_ms).name == "ann"
    assert "expired" in refusal(auth, f"Bearer {token()}", last_ms + 1)
    assert auth.caller(f"Bearer {token(nbf=NOW_S + slack_ms // 1000)}", NOW_MS).name == "ann"


def test_times_are_those_of_the_servers_clock_alone() -> None:
    """That may be years apart from the clock of the machine."""
    later_ms = 4_000_000_000_000
    times = {name: later_ms // 1000 + more for name, more in (("iat", 3), ("nbf", 2), ("exp", 60))}
    assert verifier().caller(f"Bearer {token(**times)}", later_ms).name == "ann"
    assert verifier().caller(f"Bearer {token(nbf=0, exp=60)}", 0).name == "ann"


def test_a_caller_is_one_until_its_token_expires() -> None:
    def until_ms(exp: float) -> int | None:
        return verifier().caller(f"Bearer {token(exp=exp)}", NOW_MS).until_ms

    assert until_ms(NOW_S + 60) == NOW_MS + 60_000 + limits.TOKEN_SLACK_MS
    assert until_ms(NOW_S + 60.5) == NOW_MS + 60_500 + limits.TOKEN_SLACK_MS
    assert until_ms(limits.KEY_NUMBER_MAX) == limits.KEY_NUMBER_MAX * 1000 + limits.TOKEN_SLACK_MS
    assert "must be numbers" in refusal(
        verifier(), f"Bearer {token(exp=limits.KEY_NUMBER_MAX + 1)}"
    )


def test_a_key_with_an_id_is_for_tokens_that_name_it() -> None:
    auth = verifier(id="k1")
    assert auth.caller(f"Bearer {token(kid='k1')}", NOW_MS).name == "ann"
    assert "kid" in refusal(auth, f"Bearer {token(kid='k2')}")
    assert "kid" in refusal(auth, f"Bearer {token()}")


def test_an_issuer_can_be_insisted_on() -> None:
    auth = verifier(issuer="us")
    assert auth.caller(f"Bearer {token(iss='us')}", NOW_MS).name == "ann"
    assert "ssuer" in refusal(auth, f"Bearer {token(iss='them')}")
    assert "iss" in refusal(auth, f"Bearer {token()}")


def test_keys_can_be_changed_while_old_tokens_are_in_use() -> None:
    keys = [JwtKey("HS256", letter * 32, "onceward") for letter in "ab"]
    auth = Auth(jwt_keys=keys)
    for letter in "ab":
        assert auth.caller(f"Bearer {token(letter * 32)}", NOW_MS).name == "ann"
    assert "ignature" in refusal(auth, f"Bearer {token('c' * 32)}")


def test_a_token_is_for_any_key_of_its_algorithm_and_id() -> None:
    auth = Auth(
        jwt_keys=[
            JwtKey("ES256", public(PRIVATE["ES256"]), "onceward"),
            JwtKey("HS256", "a" * 32, "onceward", id="k1"),
            JwtKey("HS256", "b" * 32, "onceward", id="k2"),
        ]
    )
    assert auth.caller(f"Bearer {token('b' * 32, kid='k2')}", NOW_MS).name == "ann"
    assert "ignature" in refusal(auth, f"Bearer {token('b' * 32, kid='k1')}")
    assert "no key" in refusal(auth, f"Bearer {token('b' * 32)}")


BAD_JWT_KEYS = {
    "short secret": (JwtKey("HS256", "s" * 31, "a"), "at least 32 bytes"),
    "public key as a secret": (JwtKey("HS256", public(PRIVATE["RS256"]), "a"), "not a secret"),
    "short key": (
        JwtKey("RS256", public(rsa.generate_private_key(65_537, 1_024)), "a"),
        "at least 2048 bits, not 1024",
    ),
    "no algorithm at all": (JwtKey("none", "", "a"), "unsupported algorithm 'none'"),
    "other algorithm": (JwtKey("HS512", "s" * 64, "a"), "unsupported algorithm 'HS512'"),
    "nonsense": (JwtKey("RS256", "hello", "a"), "not a public key as PEM"),
    "key of another kind": (JwtKey("ES256", public(PRIVATE["RS256"]), "a"), "not a public key"),
    "other curve": (
        JwtKey("ES256", public(ec.generate_private_key(ec.SECP384R1())), "a"),
        "not a public key",
    ),
    "private key": (JwtKey("RS256", private_text(PRIVATE["RS256"]), "a"), "is a private key"),
    "ceiling that means nothing": (
        JwtKey("HS256", SECRET, "a", ceiling=("everything",)),
        "is not a scope",
    ),
    "scope beyond the ceiling": (
        JwtKey("HS256", SECRET, "a", scopes={"admin": ("all",)}),
        "add it to `ceiling`",
    ),
}


@pytest.mark.parametrize("what", BAD_JWT_KEYS)
def test_a_key_that_cannot_be_trusted_is_refused_at_the_start(what: str) -> None:
    key, why = BAD_JWT_KEYS[what]
    assert why in unsettled(jwt_keys=(key,))


@pytest.mark.parametrize(
    "digest", ["", "ow_1", "sha256:", "sha256:zz", "md5:" + "0" * 64, "sha256:" + "0" * 62]
)
def test_an_api_key_is_kept_as_a_digest(digest: str) -> None:
    assert "64 hex digits" in unsettled(ApiKey("ann", digest, ("all",)))


@pytest.mark.parametrize("name", ["", "x" * 257, "ü" * 129])
def test_a_callers_name_has_limits(name: str) -> None:
    assert "a caller's name" in unsettled(ApiKey(name, digest_of("ow_1"), ("all",)))


@pytest.mark.parametrize("scope", ["", "send", "send:", "sned:orders", ":orders", "all:x", "ALL"])
def test_a_scope_that_means_nothing_is_refused(scope: str) -> None:
    assert "is not a scope" in unsettled(ApiKey("ann", digest_of("ow_1"), (scope,)))


def test_scopes_are_patterns_of_names_for_each_action() -> None:
    caller = Access(
        Caller("user", "", "ann"), Grants.of(("send:orders.*", "work:mail", "lock:[ab]?"))
    )
    assert caller.may("send", "orders.new")
    assert not caller.may("send", "orders")
    assert not caller.may("send", "Orders.new")
    assert not caller.may("work", "orders.new")
    assert caller.may("work", "mail")
    assert not caller.may("work", "mailing")
    assert caller.may("lock", "a1")
    assert not caller.may("lock", "c1")
    assert not caller.may("manage", "mail")
    with pytest.raises(OncewardError) as refused:
        caller.insist("manage", "mail")
    assert refused.value.code == "not_allowed"


def test_what_is_remembered_of_scopes_has_an_end() -> None:
    caller = Access(Caller("user", "", "ann"), Grants.of(("send:q*",)))
    for number in range(2 * limits.SCOPES_KNOWN_MAX):
        assert caller.may("send", f"q{number}")
    assert not caller.may("send", "other")
    assert len(caller._known) == limits.SCOPES_KNOWN_MAX
