"""The record of an application tells why messages came again, and what they said."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.apps.credit import limits
from onceward.apps.credit.application import (
    DIFFERENCE_BYTES_MAX,
    DIFFERENCES_BYTES_MAX,
    KEPT_MAX,
    Application,
)
from onceward.apps.credit.soap import Notification

LONG = st.integers(1, 70_000).map(lambda count: '"' * count) | st.text(max_size=5) | st.none()


def application() -> Application:
    return Application("006", "00D", {"Id": "006", "Amount": "1", "Old": "x"}, [], ["04l1"])


def test_the_same_notification_is_one_delivered_again() -> None:
    known = application()
    assert known.note(Notification("04l1", {"Id": "006", "Amount": "2"}), 7) == "redelivered"
    assert known == application()


def test_another_notification_with_the_same_fields_is_a_rule_that_fired_again() -> None:
    known = application()
    assert known.note(Notification("04l2", dict(known.fields)), 7) == "again"
    assert (known.again, known.differences) == (1, [])
    assert known.note(Notification("04l2", dict(known.fields)), 7) == "redelivered"
    assert known.again == 1


def test_fresher_fields_are_kept_beside_the_first() -> None:
    known = application()
    fresher = {"Id": "006", "Amount": "2", "New": None}
    assert known.note(Notification("04l2", fresher), 7) == "fresher"
    assert known.fields["Amount"] == "1"
    [difference] = known.differences
    assert (difference.came_ms, difference.notification) == (7, "04l2")
    assert difference.fields == {"Amount": "2", "Old": None}
    assert known.latest == {"Id": "006", "Amount": "2", "Old": None}


def test_what_is_kept_is_bounded() -> None:
    known = application()
    for number in range(100):
        known.note(Notification(f"n{number}", {"Id": "006", "Amount": str(number)}), number)
    assert len(known.differences) == len(known.notifications) == KEPT_MAX
    assert known.again == 100


def test_what_is_said_again_after_something_else_is_the_latest() -> None:
    known = application()
    first, second = dict(known.fields), {**known.fields, "Amount": "2"}
    told = [known.note(Notification(f"n{n}", dict(f)), n) for n, f in enumerate([second, first])]
    assert told == ["fresher", "fresher"]
    assert known.latest == first
    assert known.note(Notification("n2", first), 2) == "again"
    assert [difference.fields for difference in known.differences] == [{"Amount": "2"}, {}]


def test_the_latest_fields_are_known_however_often_they_changed() -> None:
    known = application()
    for number in range(100):
        known.note(Notification(f"n{number}", {"Id": "006", "Amount": str(number)}), number)
    assert known.latest["Amount"] == "99"


def test_of_a_long_text_only_the_name_is_kept_and_the_others_as_they_are() -> None:
    known = application()
    long = {**known.fields, "Amount": "x" * DIFFERENCE_BYTES_MAX, "Old": "y"}
    assert known.note(Notification("n1", dict(long)), 1) == "fresher"
    [difference] = known.differences
    assert (difference.fields, difference.omitted) == ({"Old": "y"}, ["Amount"])
    # What it was is not known any more, so anything may be news.
    assert known.note(Notification("n2", dict(known.fields)), 2) == "fresher"
    assert known.latest == known.fields


@settings(max_examples=20)
@given(st.lists(st.dictionaries(st.text(max_size=5_000), LONG, max_size=3), max_size=40))
def test_a_record_stays_small_enough_to_be_stored(came: list[dict[str, str | None]]) -> None:
    first: dict[str, str | None] = {"Id": "006", "Text": '"' * limits.SOAP_NOTIFICATION_BYTES_MAX}
    known = Application("006", "00D", first, [], ["04l1"])
    for number, fields in enumerate(came):
        assert known.note(Notification(f"n{number}", fields), number) in ("again", "fresher")
        assert known.has_room()
    assert len(msgspec.json.encode(known.differences)) <= DIFFERENCES_BYTES_MAX
