from pathlib import Path
from typing import Any

import pytest

from onceward import errors
from onceward.errors import (
    PASSING,
    TABLE,
    BadInput,
    CannotOpen,
    Conflict,
    Contention,
    EngineStopped,
    Fail,
    NotDone,
    OncewardError,
    OutcomeUnknown,
    Retry,
    StorageFull,
    TooLarge,
    Unavailable,
    Unreachable,
    register_error,
)

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, OncewardError)
]
# What an operator meets when storage cannot be opened or written, to be told apart by a script.
STORAGE = [
    "storage_full",
    "database_in_use",
    "database_newer",
    "unsupported_format",
    "not_a_database",
    "is_a_directory",
    "read_only",
    "no_such_file",
    "file_exists",
    "no_such_database",
    "access_denied",
    "damaged",
    "storage_failed",
]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_has_a_code_in_the_table(kind: type[OncewardError]) -> None:
    error = kind("it happened")
    assert error.code == kind.default_code
    assert error.kind is TABLE[kind.default_code]
    assert kind.__doc__


def test_an_error_says_what_happened_and_its_code() -> None:
    error = OncewardError("no room for it", code="storage_full", path="/data", left_bytes=3)
    assert str(error) == "no room for it [storage_full]"
    assert error.message == "no room for it"
    assert error.details == {"path": "/data", "left_bytes": 3}
    assert error.kind.status == 507


@pytest.mark.parametrize("said", [ValueError("no room"), ["no", "room"], 5, None])
def test_an_error_that_is_made_of_something_else_says_what_that_says(said: Any) -> None:
    error = Fail(said)
    assert error.message == str(said)
    assert error.args == (str(said),)
    assert str(error) == f"{said} [failed]"


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> dict[str, errors.Code]:
    """The codes that applications have registered: none, for the time of a test."""
    found: dict[str, errors.Code] = {}
    monkeypatch.setattr(errors, "_registered", found)
    return found


def test_an_application_adds_codes_of_its_own(registered: dict[str, errors.Code]) -> None:
    code = register_error("shop_sold_out", status=409, title="Nothing is left")
    assert code == "shop_sold_out"
    error = BadInput("no lamp is left", code=code, item="lamp")
    assert str(error) == "no lamp is left [shop_sold_out]"
    assert error.kind == errors.Code(409, 4409, 2, False, "Nothing is left")
    assert registered == {code: error.kind}
    assert code not in TABLE
    busy = register_error("shop_busy", status=503, title="Try later", retry=True)
    assert (OncewardError("", code=busy).kind.exit, errors.find_kind(busy)) == (
        75,
        registered[busy],
    )
    broken = register_error("shop_broken", status=500, title="The shop has a bug")
    assert OncewardError("", code=broken).kind.exit == 70


def test_a_code_can_be_registered_again_but_not_changed(
    registered: dict[str, errors.Code],
) -> None:
    for _ in range(2):
        register_error("shop_sold_out", status=409, title="Nothing is left")
    for status, title, retry in (
        (410, "Nothing is left", False),
        (409, "Sold", False),
        (409, "Nothing is left", True),
    ):
        with pytest.raises(BadInput, match="'shop_sold_out' already means"):
            register_error("shop_sold_out", status=status, title=title, retry=retry)
    kind = TABLE["lock_held"]
    with pytest.raises(BadInput, match="'lock_held' already means"):
        register_error("lock_held", status=kind.status, title=kind.title, retry=kind.retry)
    assert list(registered) == ["shop_sold_out"]


@pytest.mark.parametrize("code", ["", "sold", "Shop_sold", "shop_", "_sold", "shop sold", "7_up"])
@pytest.mark.usefixtures("registered")
def test_a_code_without_the_name_of_an_application_is_refused(code: str) -> None:
    with pytest.raises(BadInput, match="is not an error code"):
        register_error(code, status=409, title="Nothing is left")


@pytest.mark.parametrize("status", [200, 399, 600])
@pytest.mark.usefixtures("registered")
def test_a_status_that_is_no_error_is_refused(status: int) -> None:
    with pytest.raises(BadInput, match=f"must be 400 to 599, not {status}"):
        register_error("shop_sold_out", status=status, title="Nothing is left")


def test_a_code_that_is_not_in_the_table_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        OncewardError("what?", code="no_such_code")


@pytest.mark.parametrize("code", TABLE)
def test_statuses_close_codes_and_exit_codes_are_in_range(code: str) -> None:
    kind = TABLE[code]
    assert 400 <= kind.status <= 599
    assert kind.close == 4000 + kind.status, "the close code reads like the status"
    assert kind.exit == 2 or 64 <= kind.exit <= 78, "a usage error, or a range of sysexits.h"
    assert kind.title
    assert kind.title[0].isupper()
    assert not kind.title.endswith(".")
    assert code == code.lower()


def test_a_code_keeps_the_status_the_exit_code_and_the_advice_it_was_published_with() -> None:
    """Programs out there act on them: a line of the file is added with a code, never changed."""
    published = (Path(__file__).parent / "published_errors.txt").read_text().splitlines()
    assert len(published) > 100
    for line in published:
        code, status, exit_, advice = line.split()
        kind = TABLE[code]
        assert (kind.status, kind.exit) == (int(status), int(exit_)), code
        assert kind.retry == (advice == "retry"), code


def test_each_storage_error_has_an_exit_code_of_its_own() -> None:
    assert len({TABLE[code].exit for code in STORAGE}) == len(STORAGE)


def test_a_mistake_of_the_caller_is_never_worth_a_retry() -> None:
    for code, kind in TABLE.items():
        if kind.status in (400, 413, 422):
            assert not kind.retry, code
            assert kind.exit == 2, code


def test_contention_and_passing_trouble_are_worth_a_retry() -> None:
    for code in ("conflict", "contention", "outcome_unknown", "engine_unreachable"):
        assert TABLE[code].retry, code
        assert TABLE[code].exit == 75, code
    assert not TABLE["engine_stopped"].retry, "only a restart helps"


def test_trouble_passes_whatever_its_code_unless_storage_has_stopped_for_good() -> None:
    for kind in (Contention, OutcomeUnknown, Unavailable, StorageFull):
        assert issubclass(kind, PASSING)
    assert not issubclass(EngineStopped, PASSING)


def test_what_changed_nothing_can_be_told_from_what_may_have() -> None:
    for kind in (OutcomeUnknown, EngineStopped):
        assert not issubclass(kind, BadInput | Conflict | Contention | Unavailable)
    assert issubclass(TooLarge, BadInput)
    assert issubclass(StorageFull, Unavailable)
    assert not issubclass(CannotOpen, Unavailable)


def test_an_endpoint_that_was_not_reached_was_sent_nothing_unless_it_is_said() -> None:
    error = Unreachable("no route")
    assert (error.sent, error.took_s, error.ours) == (0, 0.0, False)
    error = Unreachable("cut off", code="overloaded", sent=2, took_s=1.5, ours=True, port=443)
    assert (error.sent, error.took_s, error.ours) == (2, 1.5, True)
    assert (error.code, error.details) == ("overloaded", {"port": 443})


def test_a_handler_names_the_time_of_the_next_attempt_or_leaves_it_to_the_queue() -> None:
    error = Retry()
    assert (error.after_s, error.at_ms, error.not_before_s) == (None, None, None)
    assert error.message == "the handler requested another attempt"
    assert Retry("busy", after_s=2.5).after_s == 2.5
    assert Retry("busy", at_ms=7).at_ms == 7
    assert Retry("busy", not_before_s=9).not_before_s == 9
    assert Retry("busy").message == NotDone("busy").message == "busy"
    assert NotDone().message == "nothing was done"
    assert NotDone(after_s=1).after_s == 1
    assert NotDone(not_before_s=3).not_before_s == 3
