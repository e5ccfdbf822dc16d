import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.engine.sqlite import owner
from onceward.engine.sqlite.owner import Owner, is_owned
from onceward.errors import CannotOpen


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a.db")


@pytest.fixture
def glance(path: str) -> Iterator[int]:
    """The lock that a look at the owner holds for an instant."""
    fd = os.open(f"{path}-owner", os.O_RDONLY | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_SH)
    yield fd
    os.close(fd)


def test_someone_who_only_looks_keeps_no_owner_out(
    path: str, glance: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner.time, "sleep", lambda _: fcntl.flock(glance, fcntl.LOCK_UN))
    Owner(path).release()


def test_a_lock_that_stays_is_an_owner(
    path: str, glance: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner.time, "sleep", lambda _: None)
    with pytest.raises(CannotOpen) as caught:
        Owner(path)
    assert caught.value.code == "database_in_use"


def test_one_who_may_only_read_sees_that_a_database_is_owned(path: str) -> None:
    holder = Owner(path)
    os.chmod(holder.path, 0o444)
    assert is_owned(path)
    holder.release()
    assert not is_owned(path)
