"""What callers may do, and for how long what they have shown counts."""

from dataclasses import replace as replaced
from hashlib import sha256

import jwt
import pytest
from msgspec.structs import replace

from onceward import limits
from onceward.callers import Caller
from onceward.errors import BadInput, OncewardError
from onceward.tokens import ACTIONS
from onceward.web.auth import (
    DEVELOPER,
    Access,
    ApiKey,
    Auth,
    JwtKey,
    admit_caller,
    digest_of,
)
from onceward.web.grants import EVERYTHING, Claimed, Grants, admit_scopes


def access(name: str, grants: Grants, until_ms: int | None = None) -> Access:
    return Access(Caller("key", "", name), grants, until_ms)


NOW_MS = 1_700_000_000_000
JWT_KEY = JwtKey("HS256", "s" * 32, "onceward")
PROMISED: tuple[str, ...] = (
    *("send", "work", "manage", "lock", "timer", "endpoint", "portal"),
    *("read", "write", "room", "play", "lane", "table", "operate", "metrics"),
)


def digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def keyed(*jwt_keys: JwtKey) -> Auth:
    return Auth([ApiKey("ann", digest_of("ow_1"), ("all",))], jwt_keys)


@pytest.mark.parametrize(
    "odd", ["\n", "\x00", "\x1b", "\x7f", "\x85", "\u2028", "\u202e", "\u2066"]
)
def test_a_name_has_no_control_characters(odd: str) -> None:
    name = f"a{odd}b"
    with pytest.raises(OncewardError, match="control characters") as refused:
        admit_caller(name)
    assert refused.value.code == "bad_settings"
    assert odd not in str(refused.value)
    with pytest.raises(OncewardError, match="control characters"):
        Auth([ApiKey(name, digest_of("ow_x"), ("all",))])


INCLUDED = {
    "endpoint": ("portal",),
    "write": ("read",),
    "room": ("read", "write"),
    "table": ("play",),
}


def test_the_actions_are_those_that_are_promised() -> None:
    assert ACTIONS == PROMISED


@pytest.mark.parametrize("action", PROMISED)
def test_a_scope_is_for_its_own_action_and_those_that_it_includes(action: str) -> None:
    admit_scopes([f"{action}:orders"])
    caller = access("ann", Grants.of((f"{action}:orders",)))
    allowed = {other for other in PROMISED if caller.may(other, "orders")}
    assert allowed == {action, *INCLUDED.get(action, ())}


@pytest.mark.parametrize("scopes", [(), ("all",), ("send:a", "all"), ("send:*", "lock:a:b")])
def test_scopes_that_mean_something_are_taken(scopes: tuple[str, ...]) -> None:
    admit_scopes(scopes)
    key = ApiKey("ann", digest_of("ow_1"), scopes)
    assert Auth([key]).caller("Bearer ow_1", NOW_MS).grants == Grants.of(scopes)


def test_all_scopes_are_looked_at() -> None:
    with pytest.raises(OncewardError, match="is not a scope"):
        admit_scopes(["all", "send:a", "sned:a"])


@pytest.mark.parametrize("action", PROMISED)
def test_who_may_do_everything_may_do_everything(action: str) -> None:
    for caller in (
        access("ann", EVERYTHING),
        access("ann", Grants.of(("send:a", "all"))),
        DEVELOPER,
    ):
        assert caller.may(action, "anything")
        caller.insist(action, "anything")
        caller.insist_all()


@pytest.mark.parametrize(
    "scopes", [(), ("all:*",), ("ALL",), ("al",), tuple(f"{action}:*" for action in PROMISED)]
)
def test_who_may_do_many_things_may_not_do_everything(scopes: tuple[str, ...]) -> None:
    with pytest.raises(OncewardError, match="lacks the scope 'all'") as refused:
        access("ann", Grants.of(scopes)).insist_all()
    assert refused.value.code == "not_allowed"


def test_who_sends_to_a_queue_needs_a_scope_for_it() -> None:
    access("ann", Grants.of(("send:orders",))).insist("send", "orders")
    for scopes in ((), ("send:mail",), ("work:orders", "manage:orders")):
        with pytest.raises(OncewardError, match="lacks the scope send:orders") as refused:
            access("ann", Grants.of(scopes)).insist("send", "orders")
        assert refused.value.code == "not_allowed"


def test_without_scopes_nothing_is_allowed() -> None:
    for action in PROMISED:
        with pytest.raises(OncewardError, match="lacks the scope") as refused:
            access("ann", Grants()).insist(action, "x" * 101)
        assert refused.value.code == "not_allowed"
        assert refused.value.message.endswith(f"{action}:{'x' * 100}")


def test_a_caller_is_the_same_whatever_was_asked_about_it() -> None:
    asked, other = (
        access("ann", Grants.of(("send:a",)), 5),
        access("ann", Grants.of(("send:a",)), 6),
    )
    assert asked.may("send", "a")
    assert not asked.may("send", "b")
    assert asked.may("send", "a")
    assert not asked.may("send", "b")
    assert asked == other
    assert asked == replaced(other, claimed=Claimed((), ("x",)))
    assert hash(asked) == hash(other)
    assert "until_ms=5" in repr(asked)
    assert "_known" not in repr(asked)


def test_in_dev_mode_everyone_is_the_developer() -> None:
    assert Access(Caller("user", "", "developer"), EVERYTHING) == DEVELOPER


@pytest.mark.parametrize(
    "name", ["x", "x" * limits.CALLER_BYTES_MAX, "ü" * (limits.CALLER_BYTES_MAX // 2)]
)
def test_a_name_may_be_as_long_as_this(name: str) -> None:
    admit_caller(name)
    assert Auth([ApiKey(name, digest_of("ow_1"), ())]).ids() == {f"key:{name}"}


@pytest.mark.parametrize("name", ["", "x" * (limits.CALLER_BYTES_MAX + 1), "\ud800"])
def test_a_name_that_no_record_can_hold_is_refused(name: str) -> None:
    with pytest.raises(OncewardError, match="a caller's name") as refused:
        admit_caller(name)
    assert refused.value.code == "bad_settings"


def test_the_names_of_callers_are_those_of_the_settings() -> None:
    keys = [("ann", "ow_1"), ("ann", "ow_2"), ("bob", "ow_3")]
    auth = Auth([ApiKey(name, digest_of(key), ()) for name, key in keys], [JWT_KEY])
    assert auth.ids() == {"key:ann", "key:bob"}
    assert Auth().ids() == set()


def test_keys_that_are_kept_elsewhere_are_looked_up_by_their_digest() -> None:
    auth = keyed()
    auth.stored = {digest("ow_2"): access("bob", Grants.of(("send:a",)))}.get
    assert auth.caller("Bearer ow_1", NOW_MS) == access("ann", EVERYTHING)
    assert auth.caller("Bearer ow_2", NOW_MS) == access("bob", Grants.of(("send:a",)))
    for unknown in ("ow_3", digest("ow_2"), f"ow_{digest('ow_2')}"):
        with pytest.raises(BadInput) as refused:
            auth.caller(f"Bearer {unknown}", NOW_MS)
        assert refused.value.code == "no_credentials"


def test_a_session_depends_on_the_key_it_was_opened_with() -> None:
    auth = keyed(JWT_KEY)
    bob = access("bob", Grants.of(("send:a",)))
    auth.stored = {digest("ow_2"): bob}.get
    ann = access("ann", EVERYTHING)
    for key, holder in (("ow_1", ann), ("ow_2", bob), ("ow_3", None)):
        credential = auth.credential(f"Bearer {key}")
        assert credential == digest(key) == auth.credential(f"bearer   {key} ")
        # What the key may do now counts, and not what it could do then.
        assert auth.holder(credential, access("then", Grants.of(("lock:x",)))) == holder


def test_a_session_by_a_key_ends_with_the_key() -> None:
    auth = keyed(JWT_KEY)
    bob = access("bob", Grants())
    kept = {digest("ow_2"): bob}
    auth.stored = kept.get
    credential = auth.credential("Bearer ow_2")
    assert auth.holder(credential, bob) is bob
    kept.clear()
    assert auth.holder(credential, bob) is None
    assert Auth(jwt_keys=[JWT_KEY]).holder(auth.credential("Bearer ow_1"), bob) is None


def test_a_session_by_a_token_ends_with_the_key_that_signed_it() -> None:
    other = JwtKey("HS256", "t" * 32, "onceward")
    auth, eve = keyed(JWT_KEY, other), Access(Caller("user", "", "eve"), Grants())
    claims = {"sub": "eve", "aud": "onceward", "exp": NOW_MS // 1000}
    for key, left in ((JWT_KEY, other), (other, JWT_KEY)):
        credential = auth.credential(f"Bearer {jwt.encode(claims, key.key)}")
        assert credential.startswith("jwt:")
        assert key.key not in credential
        assert auth.holder(credential, eve) is not None
        assert keyed(left).holder(credential, eve) is None
        assert keyed(left, key).holder(credential, eve) is not None
    for bad in ("Bearer a.b.c", "Bearer", f"Bearer {jwt.encode(claims, 'u' * 32)}"):
        with pytest.raises(BadInput) as refused:
            auth.credential(bad)
        assert refused.value.code == "no_credentials"
    # Of a version that did not tell keys apart.
    assert auth.holder("jwt", eve) is None


def test_a_session_by_a_token_may_do_what_its_issuer_may_grant_now() -> None:
    wide = JwtKey("HS256", "t" * 32, "onceward", ceiling=("all",), scopes={"x": ("send:x",)})
    entries = [
        {"type": "onceward", "actions": ["all"]},
        {"type": "onceward", "actions": ["lock"], "identifier": "*"},
    ]
    claims = {"sub": "eve", "aud": "onceward", "exp": NOW_MS // 1000, "scope": "x"}
    token = f"Bearer {jwt.encode({**claims, 'authorization_details': entries}, wide.key)}"
    eve = keyed(wide).caller(token, NOW_MS)
    assert eve.grants.everything
    stored = Access(Caller("user", "", "eve"), Grants(), claimed=eve.claimed)
    credential = keyed(wide).credential(token)
    for ceiling, scopes, allowed in (
        (("all",), wide.scopes, (True, True, True)),
        (("lock:*", "send:*"), wide.scopes, (False, True, True)),
        (("lock:*",), {}, (False, True, False)),
        ((), {}, (False, False, False)),
    ):
        auth = keyed(replace(wide, ceiling=ceiling, scopes=scopes))
        now = auth.holder(credential, stored)
        assert now is not None
        assert (now.grants.everything, now.may("lock", "*"), now.may("send", "x")) == allowed


def test_a_session_keeps_to_the_issuer_of_its_token() -> None:
    """One secret may be that of several, each with a ceiling of its own."""
    wide = JwtKey("HS256", "t" * 32, "operators", ceiling=("all",))
    narrow = JwtKey("HS256", "t" * 32, "players", ceiling=("play:club",))
    auth = keyed(wide, narrow)
    entries = [{"type": "onceward", "actions": ["all"]}]
    claims = {"sub": "eve", "exp": NOW_MS // 1000, "authorization_details": entries}
    for key in (wide, narrow):
        token = f"Bearer {jwt.encode({**claims, 'aud': key.audience}, key.key)}"
        stored = Access(
            Caller("user", "", "eve"), Grants(), claimed=auth.caller(token, NOW_MS).claimed
        )
        holder = auth.holder(auth.credential(token), stored)
        assert holder is not None
        assert holder.grants.everything == (key is wide)


def test_a_session_of_dev_mode_counts_in_dev_mode_alone() -> None:
    dev = Auth(dev=True)
    for authorization in (None, "Bearer ow_1", "Bearer a.b.c"):
        assert dev.credential(authorization) == "dev"
    assert dev.holder("dev", Access(Caller("user", "", "developer"), Grants())) == DEVELOPER
    assert keyed(JWT_KEY).holder("dev", DEVELOPER) is None
    known = Auth([ApiKey("ann", digest_of("ow_1"), ("all",))], [JWT_KEY], dev=True)
    for auth in (dev, known):
        for credential in (f"jwt:{digest(JWT_KEY.key)}", digest("ow_1")):
            assert auth.holder(credential, DEVELOPER) is None
