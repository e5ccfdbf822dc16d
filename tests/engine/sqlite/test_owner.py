import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onceward.engine.sqlite.owner import Owner, describe, is_owned
from onceward.errors import CannotOpen

HOLD = """
import sys
from onceward.engine.sqlite.owner import Owner
owner = Owner(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""
# The child says so when it runs, and stays until its input ends.
FORK = """
import os, sys
from onceward.engine.sqlite.owner import Owner
owner = Owner(sys.argv[1])
if os.fork() == 0:
    if "release" in sys.argv:
        owner.release()
    print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "app.db")


def hold(path: str, script: str = HOLD, *arguments: str) -> "subprocess.Popen[str]":
    """Another process that owns the database, until it is killed or its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, path, "--port", "1", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def test_the_holder_is_named_and_its_command(path: str) -> None:
    process = hold(path)
    try:
        with pytest.raises(CannotOpen) as refused:
            Owner(path)
        assert refused.value.code == "database_in_use"
        assert f"process {process.pid} on " in refused.value.message
        assert f"{path} --port 1)" in refused.value.message
        assert is_owned(path)
    finally:
        end(process)


def test_the_lock_goes_with_the_process(path: str) -> None:
    end(hold(path))
    assert not is_owned(path)
    owner = Owner(path)
    assert f"process {os.getpid()}" in describe(path)
    owner.release()


def test_a_forked_child_that_outlives_the_owner_does_not_keep_the_lock(path: str) -> None:
    process = hold(path, FORK)
    try:
        assert is_owned(path)
        process.kill()
        process.wait()
        assert not is_owned(path)
    finally:
        process.communicate()  # the child ends with its input


def test_a_forked_child_does_not_take_the_lock_from_the_owner(path: str) -> None:
    process = hold(path, FORK, "release")
    assert is_owned(path)
    assert f"process {process.pid} on " in describe(path)
    end(process)


def test_a_lock_that_is_released_is_free_though_others_have_its_descriptor(path: str) -> None:
    owner = Owner(path)
    other = os.dup(owner._fd)
    owner.release()
    assert not is_owned(path)
    os.close(other)


def test_a_lock_that_was_released_is_free_and_names_no_one(path: str) -> None:
    owner = Owner(path)
    assert is_owned(path)
    owner.release()
    owner.release()
    assert not is_owned(path)
    assert describe(path) == "another process"
    Owner(path).release()


def test_two_in_one_process_exclude_each_other(path: str) -> None:
    owner = Owner(path)
    with pytest.raises(CannotOpen, match="is in use by process"):
        Owner(path)
    assert is_owned(path), "the refused one took nothing away"
    owner.release()


@pytest.mark.parametrize("note", ["", "not json", "[]", '{"pid": 1}'])
def test_a_note_that_makes_no_sense_is_no_hindrance(note: str, path: str) -> None:
    owner = Owner(path)
    Path(f"{path}-owner").write_text(note)
    with pytest.raises(CannotOpen, match="in use by another process"):
        Owner(path)
    owner.release()


def test_a_database_without_a_lock_file_is_owned_by_no_one(path: str) -> None:
    assert not is_owned(path)
    assert not os.path.exists(f"{path}-owner"), "looking makes no file"


def test_a_note_that_cannot_be_written_gives_the_lock_back(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            Owner(path)
    assert not is_owned(path)


def test_releasing_gives_the_lock_back_even_if_the_note_stays(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise OSError(5, "Input/output error")

    owner = Owner(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", broken)
        owner.release()
    assert not is_owned(path)
    assert json.loads(Path(f"{path}-owner").read_text())["pid"] == os.getpid()
