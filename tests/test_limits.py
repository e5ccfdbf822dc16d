import re
from pathlib import Path

import pytest

from onceward import limits
from onceward.limits import (
    COMMIT_BYTES_MAX,
    COMMIT_WRITES_MAX,
    GET_KEYS_MAX,
    KEY_NUMBER_MAX,
    PARTITION_BYTES_MAX,
    SCAN_RECORDS_DEFAULT,
    SCAN_RECORDS_MAX,
    SORT_BYTES_MAX,
    VALUE_BYTES_MAX,
)

NAMES = [name for name in vars(limits) if name.isupper()]
PARTS = {
    path.stem: path.read_text()
    for path in Path(limits.__file__ or "").parent.glob("*.py")
    if path.stem != "__init__"
}


def test_every_limit_is_a_positive_number() -> None:
    assert NAMES
    for name in NAMES:
        value = getattr(limits, name)
        assert isinstance(value, int | float), name
        assert value > 0, name


def test_no_limit_has_the_name_of_another() -> None:
    set_ = [name for text in PARTS.values() for name in re.findall(r"(?m)^([A-Z_]+) =", text)]
    assert sorted(set_) == sorted(NAMES)


@pytest.mark.parametrize("part", PARTS)
def test_every_group_of_limits_is_explained(part: str) -> None:
    groups = re.split(r"\n\n", PARTS[part].split('"""', 2)[2].strip())
    for group in groups:
        assert group.startswith("#"), f"no comment above {group.splitlines()[0]}"


def test_a_commit_fits_into_a_dynamodb_transaction() -> None:
    assert COMMIT_WRITES_MAX <= 100
    assert COMMIT_BYTES_MAX <= 4 << 20
    # Its own attributes, and their names, count too.
    overhead_bytes = 2_048
    item_bytes = VALUE_BYTES_MAX + PARTITION_BYTES_MAX + SORT_BYTES_MAX + overhead_bytes
    assert item_bytes <= 400 << 10
    assert PARTITION_BYTES_MAX <= 2_048
    assert SORT_BYTES_MAX <= 1_024
    assert GET_KEYS_MAX <= 100


def test_the_largest_record_fits_into_a_commit() -> None:
    assert VALUE_BYTES_MAX + PARTITION_BYTES_MAX + SORT_BYTES_MAX < COMMIT_BYTES_MAX


def test_a_number_in_a_key_holds_any_time_in_milliseconds() -> None:
    year_9999_ms = 253_402_300_799_999
    assert year_9999_ms < KEY_NUMBER_MAX < 2**63
    assert KEY_NUMBER_MAX > 2**53, "every integer that JSON can carry exactly"


def test_defaults_are_within_their_limits() -> None:
    assert SCAN_RECORDS_DEFAULT <= SCAN_RECORDS_MAX
