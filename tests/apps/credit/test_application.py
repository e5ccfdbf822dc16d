"""The record of an application tells why messages came again, and what they said."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.credit import limits
from apps.credit.application import (
    DIFFERENCE_BYTES_MAX,
    DIFFERENCES_BYTES_MAX,
    PULL_BYTES_MAX,
    Application,
    Difference,
    Pull,
    body_of,
    key_of,
)
from apps.credit.soap import Notification
from onceward.keys import join
from onceward.limits import VALUE_BYTES_MAX

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
    assert known.notifications == ["04l1", *(f"n{number}" for number in range(19))]
    assert [one.came_ms for one in known.differences] == [*range(80, 100)]
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


def kept(fields: dict[str, str | None]) -> Difference:
    """What is kept of a notification with such fields."""
    known = Application("006", "00D", {}, [], [])
    known.note(Notification("n1", fields), 1)
    [difference] = known.differences
    return difference


def size(value: object) -> int:
    return len(msgspec.json.encode(value))


# A difference with no more than a word that more was said.
LEAST_BYTES = len('{"came_ms":1,"notification":"n1","fields":{},"omitted":["…"]}'.encode())


def test_a_text_is_kept_to_the_last_byte_that_there_is_room_for() -> None:
    most = "x" * (4_000 - LEAST_BYTES - len('["A",""]'))
    assert kept({"A": most}).fields == {"A": most}
    longer = kept({"A": most + "x"})
    assert (longer.fields, longer.omitted) == ({}, ["A"])
    shared = kept({"A": most[:2_000], "B": most[:1_900], "C": most[:1_800]})
    assert (shared.fields.keys(), shared.omitted) == ({"C", "B"}, ["A"])


def test_a_name_is_kept_to_the_last_byte_that_there_is_room_for() -> None:
    most = "x" * (4_000 - LEAST_BYTES - len('"",'))
    long = "y" * 4_000
    assert kept({most: long}).omitted == [most]
    assert kept({most + "x": long}).omitted == ["…"]
    assert kept({"a" * 1_300 + end: long for end in "abcdef"}).omitted == [
        "a" * 1_300 + "a",
        "a" * 1_300 + "b",
        "a" * 1_300 + "c",
        "…",
    ]


@given(st.dictionaries(st.text(max_size=2_000), LONG, min_size=1, max_size=5))
def test_no_difference_takes_more_than_it_may(fields: dict[str, str | None]) -> None:
    known = Application("006", "00D", {"": "first"}, [], [])
    known.note(Notification("n1", fields), 1)
    assert all(size(difference) <= DIFFERENCE_BYTES_MAX for difference in known.differences)


@pytest.mark.parametrize(("more", "first"), [(0, 0), (1, 1)])
def test_all_differences_are_kept_to_the_last_byte_that_there_is_room_for(
    more: int, first: int
) -> None:
    known = Application("006", "00D", {}, [], [])
    for number in range(12):
        known.note(Notification(f"n{number}", {"Amount": "x" * 3_000 + str(number)}), number)
    one_more = [*known.differences, Difference(12, "n12", {"Amount": ""})]
    left_bytes = 40_000 - size(one_more)
    known.note(Notification("n12", {"Amount": "y" * (left_bytes + more)}), 12)
    assert [one.came_ms for one in known.differences] == [*range(first, 13)]


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_there_is_room_for_a_pull_while_the_longest_one_fits(more: int, fits: bool) -> None:
    known = application()
    known.fields["Name"] = ""
    known.fields["Name"] = "x" * (VALUE_BYTES_MAX - PULL_BYTES_MAX - size(known) + more)
    assert known.has_room() is fits


def test_pulls_are_told_apart_by_their_jobs() -> None:
    known = application()
    known.pulls = [Pull("job1", 1), Pull("job2", 2, by="ann", reason="why")]
    assert known.pull_of("job2") is known.pulls[1]
    first = known.pull_of("job1")
    assert (first.by, first.reason, first.report, first.outcome) == ("", "", "", "")


def test_an_application_is_kept_by_its_organisation_and_its_own_id() -> None:
    assert key_of("00D", "006") == ("credit", join("00D", "006"))


def test_the_first_pull_gets_all_that_was_said() -> None:
    assert body_of("00D", Notification("04l1", {"Id": "006", "Amount": None})) == {
        "organisation": "00D",
        "opportunity": "006",
        "fields": {"Id": "006", "Amount": None},
    }


@settings(max_examples=20)
@given(st.lists(st.dictionaries(st.text(max_size=5_000), LONG, max_size=3), max_size=40))
def test_a_record_stays_small_enough_to_be_stored(came: list[dict[str, str | None]]) -> None:
    first: dict[str, str | None] = {"Id": "006", "Text": '"' * limits.SOAP_NOTIFICATION_BYTES_MAX}
    known = Application("006", "00D", first, [], ["04l1"])
    for number, fields in enumerate(came):
        assert known.note(Notification(f"n{number}", fields), number) in ("again", "fresher")
        assert known.has_room()
    assert size(known.differences) <= DIFFERENCES_BYTES_MAX
