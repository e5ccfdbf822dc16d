"""The record of an application tells why messages came again, and what they said."""

from onceward.apps.credit.application import KEPT_MAX, Application
from onceward.apps.credit.soap import Notification


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
