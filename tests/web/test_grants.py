"""Literal grants of tokens, patterns of the configuration, and ceilings of issuers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.errors import BadInput, OncewardError
from onceward.tokens import ACTIONS, Grant
from onceward.web.grants import EVERYTHING, Claimed, Grants, Issuer, Pattern, admit_scopes
from tests.hostile import NAMES, OTHERS


def by_token(issuer: Issuer, *grants: Grant, scope: str = "", user: str = "ann") -> Grants:
    entries = [
        {"type": "onceward", "actions": [action], **({"identifier": name} if name else {})}
        for action, name in grants
    ]
    claims = {"authorization_details": entries, "scope": scope}
    return issuer.grants(issuer.read(claims), user)


def covered(grants: Grants, *names: str) -> set[Grant]:
    return {Grant(one, name) for one in ACTIONS for name in names if grants.cover(one, name)}


@pytest.mark.parametrize("name", NAMES)
def test_a_grant_is_for_exactly_its_name(name: str) -> None:
    others = [other for other in (*OTHERS, *NAMES) if other != name]
    for issuer in (Issuer(), Issuer(["all"])):
        grants = by_token(issuer, Grant("read", name))
        assert covered(grants, name, *others) == {Grant("read", name)}
        assert not grants.everything


def test_scopes_of_api_keys_are_patterns() -> None:
    grants = Grants.of(("send:orders.*", "lock:[ab]?"))
    assert grants.cover("send", "orders.new")
    assert grants.cover("lock", "a1")
    assert covered(grants, "orders", "Orders.new", "c1", "all") == set()
    assert not grants.everything


def test_everything_covers_everything() -> None:
    assert EVERYTHING.everything
    assert len(covered(EVERYTHING, "x", "*", "")) == 3 * len(ACTIONS)
    for scopes in ((), ("all:*",), ("ALL",), tuple(f"{one}:*" for one in ACTIONS)):
        assert not Grants.of(scopes).everything


def test_an_issuer_without_a_ceiling_appoints_no_operators() -> None:
    asked = [Grant("all"), *(Grant(one, "x") for one in ACTIONS)]
    grants = by_token(Issuer(), *asked)
    assert not grants.everything
    allowed = {one.action for one in covered(grants, "x")}
    assert set(ACTIONS) - allowed == {"manage", "operate", "metrics"}
    assert covered(by_token(Issuer(), Grant("all")), "x", "all", "") == set()


def test_a_grant_counts_where_the_ceiling_covers_it() -> None:
    issuer = Issuer(["read:board.*", "manage:mail"])
    asked = [Grant("read", "board.7"), Grant("read", "vault"), Grant("write", "board.7")]
    grants = by_token(issuer, *asked, Grant("manage", "mail"), Grant("all"))
    found = covered(grants, "board.7", "board.8", "vault", "mail")
    assert found == {Grant("read", "board.7"), Grant("manage", "mail")}
    assert grants.ask("write", "board.7")
    assert not grants.everything
    assert by_token(Issuer(["all"]), Grant("all")).everything
    assert covered(by_token(Issuer([]), *asked), "board.7") == set()


def test_a_grant_that_looks_like_a_pattern_is_not_widened_by_a_ceiling() -> None:
    grants = by_token(Issuer(["read:*"]), Grant("read", "*"), Grant("read", "board.[78]"))
    assert covered(grants, "board.7", "x", "*") == {Grant("read", "*")}


def test_the_scope_claim_counts_only_where_it_is_mapped() -> None:
    for scope in ("all", "send:orders", "read:* all", "openid"):
        assert covered(by_token(Issuer(["all"]), scope=scope), "orders", "x") == set()
    issuer = Issuer(scopes={"orders.send": ["send:orders.*"], "chat": ["read:chat", "write:chat"]})
    grants = by_token(issuer, scope="openid orders.send all")
    assert covered(grants, "orders.new", "chat", "all") == {Grant("send", "orders.new")}
    assert len(covered(by_token(issuer, scope="chat orders.send"), "orders.1", "chat")) == 3


def test_a_token_without_scopes_has_none_of_those_that_are_mapped() -> None:
    issuer = Issuer(scopes={"x": ["read:chat"]})
    assert issuer.read({}) == Issuer().read({"scope": "x"}) == Claimed()
    assert issuer.read({"scope": " x  x "}) == Claimed((), ("x", "x"))


def test_a_scope_claim_of_another_type_is_refused_where_it_counts() -> None:
    issuer = Issuer(scopes={"chat": ["read:chat"]})
    with pytest.raises(BadInput, match="must be text"):
        issuer.read({"scope": ["chat"]})
    assert Issuer().read({"scope": ["chat"]}) == Claimed()


def test_the_ceiling_holds_for_mapped_scopes() -> None:
    issuer = Issuer(["read:board.*"], {"r": ["read:*"]})
    assert covered(by_token(issuer, scope="r"), "board.7", "vault") == {Grant("read", "board.7")}
    assert by_token(Issuer(["all"], {"admin": ["all"]}), scope="admin").everything


@pytest.mark.parametrize("scope", ["all", "manage:*", "operate:x"])
def test_a_scope_is_not_mapped_beyond_the_ceiling(scope: str) -> None:
    with pytest.raises(OncewardError, match="add it to `ceiling`") as refused:
        Issuer(scopes={"admin": ["send:x", scope]})
    assert refused.value.code == "bad_settings"
    Issuer(["all"], {"admin": [scope]})


@pytest.mark.parametrize("user", NAMES)
def test_a_user_in_a_pattern_is_literal(user: str) -> None:
    issuer = Issuer(["write:notes.{sub}.*"], {"notes": ["write:*.{sub}.*"]})
    grants = by_token(issuer, scope="notes", user=user)
    assert Pattern("read", "{sub}").for_user("ax*?[]").names == "ax[*][?][[]]"
    others = [other for other in (*OTHERS, *NAMES) if other != user]
    assert grants.cover("write", f"notes.{user}.1")
    assert covered(grants, *(f"notes.{other}.1" for other in others)) == set()


@given(st.text(), st.text())
def test_a_pattern_with_a_user_matches_only_that_user(user: str, other: str) -> None:
    pattern = Pattern("read", "a.{sub}.b").for_user(user)
    assert pattern.covers("read", f"a.{user}.b")
    assert pattern.covers("read", f"a.{other}.b") == (user == other)


@pytest.mark.parametrize("scope", ["read:[{sub}]", "read:[a{sub}", "read:{sub}.[a{sub}]"])
def test_a_user_cannot_be_part_of_a_set_of_characters(scope: str) -> None:
    for settings in ({"ceiling": [scope]}, {"scopes": {"x": [scope]}}):
        with pytest.raises(OncewardError, match=r"before .sub") as refused:
            Issuer(**settings)  # type: ignore[arg-type]
        assert refused.value.code == "bad_settings"
    Issuer(["read:{sub}.[ab]"])


@pytest.mark.parametrize("scope", ["", "send", "send:", "sned:orders", ":orders", "all:x", "ALL"])
def test_a_scope_that_means_nothing_is_refused(scope: str) -> None:
    for refuse in (
        lambda: admit_scopes(["all", scope]),
        lambda: Issuer([scope]),
        lambda: Issuer(scopes={"x": [scope]}),
    ):
        with pytest.raises(OncewardError, match="is not a scope") as refused:
            refuse()
        assert refused.value.code == "bad_settings"
