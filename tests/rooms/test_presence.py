"""Presences of a room, as a pure value."""

import pytest

from onceward import limits
from onceward.errors import BadInput
from onceward.rooms.presence import Presences


def test_an_entry_is_over_when_its_time_is_and_not_before() -> None:
    presences = Presences()
    presences.set("cursor", "ann", {"x": 1}, 100)
    presences.set("cursor", "ben", {"x": 2}, 200)
    assert presences.next_ms == 100
    assert presences.expire(99) == []
    assert presences.expire(100) == [("cursor", "ann")]
    assert presences.whole() == {"cursor": {"ben": {"x": 2}}}
    assert presences.next_ms == 200
    assert presences.expire(1000) == [("cursor", "ben")]
    assert not presences
    assert presences.next_ms is None


def test_renewing_is_no_change_and_lasts_longer() -> None:
    presences = Presences()
    assert presences.set("cursor", "ann", 1, 100)
    assert not presences.set("cursor", "ann", 1, 200)
    assert presences.set("cursor", "ann", True, 200)  # equal in Python alone
    assert presences.expire(150) == []


def test_all_entries_of_a_user_or_a_name_go_together() -> None:
    presences = Presences()
    for name in ("cursor", "typing"):
        for user in ("ann", "ben"):
            presences.set(name, user, 1, 100)
    assert presences.remove_user("ann") == ["cursor", "typing"]
    assert presences.remove_user("ann") == []
    assert presences.remove_name("typing") == ["ben"]
    assert presences.remove("cursor", "ben")
    assert not presences.remove("cursor", "ben")
    assert not presences


def test_a_user_has_not_any_number_of_them() -> None:
    presences = Presences()
    for number in range(limits.PRESENCES_PER_USER_MAX):
        presences.set(f"p{number}", "ann", 1, 100)
    with pytest.raises(BadInput, match="at most") as refused:
        presences.set("more", "ann", 1, 100)
    assert refused.value.code == "room_too_large"
    presences.set("p0", "ann", 2, 100)
    presences.set("more", "ben", 1, 100)


def test_all_together_have_not_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PRESENCES_BYTES_MAX", 100)
    presences = Presences()
    presences.set("p", "ann", "a", 100, 60)
    with pytest.raises(BadInput, match="together") as refused:
        presences.set("p", "ben", "b", 100, 50)
    assert refused.value.code == "room_too_large"
    presences.set("p", "ann", "a", 200, 60)  # to renew it takes no more
    presences.set("p", "ann", "c", 200, 50)
    presences.set("q", "ben", "b", 100, 50)
    for gone in (
        lambda: presences.expire(100),
        lambda: presences.remove_name("p"),
    ):
        assert gone()
        presences.set("r", "cat", "d", 100, 50)
        presences.remove("r", "cat")
    presences.set("r", "cat", "d", 100, 100)
