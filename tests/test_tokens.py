"""Tokens that an application signs for its users."""

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits, tokens
from onceward.clock import Clock
from onceward.errors import BadInput, OncewardError
from onceward.tokens import Grant, details, grants_in, sign
from tests.hostile import NAMES

SECRET = "s" * 32
PRIVATE: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65_537, 2_048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}


def claims_of(token: str, key: Any = SECRET, algorithm: str = "HS256") -> dict[str, Any]:
    return jwt.decode(token, key, [algorithm], audience="onceward")


def refusal(**asked: Any) -> str:
    with pytest.raises(BadInput) as refused:
        sign(asked.pop("key", SECRET), **{"user": "ann", **asked})
    assert refused.value.code == "bad_value"
    return refused.value.message


def test_a_token_has_a_user_a_lifetime_and_grants_as_data() -> None:
    clock = Clock(wall_ns=lambda: 1_700_000_000_000_000_000, boot_ns=lambda: 0)
    made = sign(SECRET, user="ann", read=["r1"], write=["r1", "r2"], expires_s=60, clock=clock)
    claims = jwt.decode(made, SECRET, ["HS256"], audience="onceward", options={"verify_exp": False})
    assert claims == {
        "sub": "ann",
        "aud": "onceward",
        "iat": 1_700_000_000,
        "exp": 1_700_000_060,
        "authorization_details": [
            {"type": "onceward", "actions": ["read", "write"], "identifier": "r1"},
            {"type": "onceward", "actions": ["write"], "identifier": "r2"},
        ],
    }


def test_audience_issuer_and_key_id_can_be_given() -> None:
    made = sign(SECRET, user="ann", audience="a", issuer="i", key_id="k", algorithm="HS256")
    claims = jwt.decode(made, SECRET, ["HS256"], audience="a", issuer="i")
    assert claims["authorization_details"] == []
    assert jwt.get_unverified_header(made) == {"alg": "HS256", "kid": "k", "typ": "JWT"}


@pytest.mark.parametrize("algorithm", PRIVATE)
def test_a_private_key_signs(algorithm: str) -> None:
    private = PRIVATE[algorithm]
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for key in (pem, pem.decode()):
        made = sign(key, user="ann", algorithm=algorithm)
        assert claims_of(made, private.public_key(), algorithm)["sub"] == "ann"


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_literal_whatever_it_contains(name: str) -> None:
    claims = claims_of(sign(SECRET, user="ann", read=[name]))
    assert grants_in(claims["authorization_details"]) == (Grant("read", name),)
    assert set(claims) == {"sub", "aud", "iat", "exp", "authorization_details"}


@given(
    st.lists(
        st.builds(
            Grant,
            st.sampled_from(tokens.ACTIONS),
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        )
    )
)
def test_grants_come_back_as_they_were_given(grants: list[Grant]) -> None:
    claim = json.loads(json.dumps(claims_of(sign(SECRET, user="ann", grants=grants))))
    assert set(grants_in(claim["authorization_details"])) == set(grants)


def test_there_is_a_keyword_for_each_action() -> None:
    asked: Any = {action: [f"{action}-1"] for action in tokens.ACTIONS}
    claim = claims_of(sign(SECRET, user="ann", **asked))["authorization_details"]
    assert grants_in(claim) == tuple(Grant(one, f"{one}-1") for one in tokens.ACTIONS)


def test_everything_is_a_grant_without_a_name() -> None:
    claim = claims_of(sign(SECRET, user="ann", grants=[Grant("all")]))["authorization_details"]
    assert claim == [{"type": "onceward", "actions": ["all"]}]
    assert grants_in(claim) == (Grant("all"),)


def test_what_makes_no_sense_is_not_signed() -> None:
    assert "use read=['board']" in refusal(read="board")
    assert "use read=[b'board']" in refusal(read=b"board")
    assert "unknown action 'reed'" in refusal(reed=["board"])
    assert "unknown action 'read:x'" in refusal(grants=[Grant("read:x", "board")])
    assert "must not have a name" in refusal(grants=[Grant("all", "board")])
    assert "name for 'read'" in refusal(read=[""])
    assert "name for 'read'" in refusal(read=["\ud800"])
    assert "name for 'read'" in refusal(read=[7])
    assert "at least 1" in refusal(expires_s=0)
    claims = claims_of(sign(SECRET, user="ann", expires_s=1))
    assert claims["exp"] - claims["iat"] == 1
    claims = claims_of(sign(SECRET, user="ann"))
    assert claims["exp"] - claims["iat"] == 3_600
    many = [str(number) for number in range(limits.GRANTS_MAX + 1)]
    assert "at most 1000 grants" in refusal(read=many)
    assert sign(SECRET, user="ü" * 128, read=many[1:])


@pytest.mark.parametrize("user", ["", "ü" * 129, "\ud800", "a\nb", "\u202eann", 7, None])
def test_no_token_is_signed_for_a_user_that_the_server_would_refuse(user: Any) -> None:
    with pytest.raises(BadInput, match="a caller's name") as refused:
        sign(SECRET, user=user)
    assert refused.value.code == "bad_name"


@pytest.mark.parametrize(
    ("algorithm", "key", "why"),
    [
        ("HS256", "s" * 31, "31 bytes; use at least 32"),
        ("none", "", "unsupported algorithm 'none'"),
        ("HS512", "s" * 64, "unsupported algorithm"),
        ("RS256", SECRET, "cannot sign with RS256"),
        ("ES256", b"-----BEGIN PRIVATE KEY-----", "use its private key as PEM"),
    ],
)
def test_a_key_that_does_not_fit_is_refused(algorithm: str, key: str | bytes, why: str) -> None:
    with pytest.raises(OncewardError, match=why) as refused:
        sign(key, user="ann", algorithm=algorithm)
    assert refused.value.code == "bad_settings"


OURS = {"type": "onceward", "actions": ["read"], "identifier": "r1"}


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        ("all", "not a list of objects"),
        ({"type": "onceward"}, "not a list of objects"),
        (["all"], "not a list of objects"),
        ([{**OURS, "type": None}], "without a type"),
        ([{"actions": ["all"]}], "without a type"),
        ([{**OURS, "actions": "read"}], "invalid entry"),
        ([{**OURS, "actions": ["reed"]}], "unknown action"),
        ([{**OURS, "actions": ["all"]}], "must not have a name"),
        ([{**OURS, "identifier": ""}], "name for 'read'"),
        ([{**OURS, "identifier": ["r1"]}], "invalid entry"),
        ([{**OURS, "locations": ["https://elsewhere.example"]}], "invalid entry"),
        ([{"type": "onceward", "identifier": "r1"}], "invalid entry"),
        ([OURS] * (limits.GRANTS_MAX + 1), "at most 1000"),
    ],
)
def test_a_claim_of_another_shape_is_refused(claim: Any, why: str) -> None:
    with pytest.raises(BadInput, match=why) as refused:
        grants_in(claim)
    assert refused.value.code == "bad_value"


def test_entries_for_other_services_are_left_alone() -> None:
    payment = {"type": "payment_initiation", "actions": ["all"], "amount": {"value": 7}}
    assert grants_in([payment, OURS]) == (Grant("read", "r1"),)
    assert grants_in([OURS] * limits.GRANTS_MAX) == (Grant("read", "r1"),) * limits.GRANTS_MAX


def test_a_message_quotes_the_beginning_of_what_is_wrong() -> None:
    long, quoted = "x" * 101, f"'{'x' * 100}'"
    assert quoted in refusal(grants=[Grant("all", long)])
    assert f"{quoted}; use one of send, work, manage, lock" in refusal(grants=[Grant(long, "r1")])
    assert f"use read=[{quoted}]" in refusal(read=long)
    assert f"'{'1' * 100}'; use non-empty" in refusal(read=[int("1" * 101)])


def test_the_same_grant_twice_is_written_once() -> None:
    [detail] = details([Grant("read", "r1"), Grant("read", "r1")])
    assert detail.actions == ("read",)
