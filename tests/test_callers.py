import pytest

from onceward import keys, limits
from onceward.callers import APPLICATION, Caller, admit_label, caller_id
from onceward.errors import BadInput

CALLERS = {
    "": APPLICATION,
    "app:twilio": Caller("app", "", "twilio"),
    "key:billing": Caller("key", "", "billing"),
    "user:billing": Caller("user", "", "billing"),
    "user@partner:billing": Caller("user", "partner", "billing"),
    "user:@partner:billing": Caller("user", "", "@partner:billing"),
    "user:key:billing": Caller("user", "", "key:billing"),
    "key:a b:c#$": Caller("key", "", "a b:c#$"),
    "team\x1fkey:billing": Caller("key", "", "billing", "team"),
    "team\x1f": Caller("app", "", "", "team"),
}


@pytest.mark.parametrize("id_", CALLERS)
def test_an_id_names_one_caller_and_can_be_read_back(id_: str) -> None:
    assert CALLERS[id_].id == id_
    assert Caller.parse(id_) == CALLERS[id_]


def test_callers_of_one_name_are_different_users_in_rooms_and_at_tables() -> None:
    users = {caller.user for caller in CALLERS.values()}
    assert len(users) == len(CALLERS)
    assert Caller("user", "", "alice").user == "alice"
    assert Caller("user", "", "key:billing").user == "user:key:billing"
    for caller in CALLERS.values():
        if caller.name:
            assert Caller.of_user(caller.user) == caller


@pytest.mark.parametrize("text", ["billing", "root:x", "key:", "user@:x", "user@A b:x", "KEY:x"])
def test_text_that_is_no_id_of_a_caller_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="use key:NAME, user:NAME or app:NAME") as raised:
        Caller.parse(text)
    assert raised.value.code == "bad_name"


def test_text_from_the_application_never_stands_for_a_key_or_a_user() -> None:
    assert caller_id("") == ""
    assert caller_id("key:billing") == "app:key:billing"
    assert caller_id(Caller("key", "", "billing")) == "key:billing"
    for wrong in (5, None, b"x", "a\nb", "x" * (limits.CALLER_BYTES_MAX + 1)):
        with pytest.raises(BadInput):
            caller_id(wrong)  # type: ignore[arg-type]


def test_the_longest_id_has_room_for_kind_issuer_and_namespace() -> None:
    issuer, namespace = "i" * limits.ISSUER_CHARS_MAX, "n" * limits.NAMESPACE_CHARS_MAX
    longest = Caller("user", issuer, "x" * limits.CALLER_BYTES_MAX, namespace)
    assert len(longest.id) <= limits.CALLER_ID_BYTES_MAX
    assert limits.CALLER_ID_BYTES_MAX == limits.ROOM_USER_BYTES_MAX == limits.SEATS_USER_BYTES_MAX
    assert Caller.parse(longest.id) == longest
    assert keys.unqualified(longest.id)[0] == namespace


@pytest.mark.parametrize("label", ["A", "a b", "ä", "x" * 33, "a@b", 5, "a\n"])
def test_a_label_of_an_issuer_has_plain_characters(label: object) -> None:
    admit_label("")
    admit_label("partner-2")
    with pytest.raises(BadInput, match="the label of an issuer"):
        admit_label(label)
