import gzip
from pathlib import Path

import pytest

import onceward
from onceward import cli
from onceward.engine.memory import MemoryEngine
from onceward.errors import CannotOpen
from onceward.store import Store
from onceward.store.format import FORMAT, FORMAT_KEY
from onceward.store.transaction import Transaction

FIXTURES = Path(__file__).parents[1] / "fixtures"


def unpacked(folder: Path) -> Path:
    """A database of the code before format versions: its user records look like our own."""
    path = folder / "app.db"
    path.write_bytes(gzip.decompress((FIXTURES / "format-0.db.gz").read_bytes()))
    path.chmod(0o600)
    return path


def content(folder: Path) -> dict[str, bytes]:
    """The files that hold anything, such as not the one whose lock tells the owner."""
    return {path.name: data for path in folder.iterdir() if (data := path.read_bytes())}


async def test_a_database_without_a_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = unpacked(tmp_path)
    before = content(tmp_path)
    with pytest.raises(CannotOpen) as refused:
        await onceward.App(f"sqlite:///{path}").start()
    assert refused.value.code == "unsupported_format"
    assert "format 1" in refused.value.message, "its file is of another format, too"
    assert "new database" in refused.value.message
    assert content(tmp_path) == before


def test_a_database_of_another_format_is_not_called_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = unpacked(tmp_path)
    assert cli.main(["db", "check", str(path)]) == 64
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.endswith(" [unsupported_format]\n")
    assert "damaged" not in shown.err


async def test_a_new_database_gets_the_version_and_opens_again() -> None:
    engine = MemoryEngine()
    for _ in range(2):
        async with onceward.App(engine):
            [found] = await engine.get([FORMAT_KEY], 0)
            assert found is not None
            assert found.value == b'{"version":%d}' % FORMAT


@pytest.mark.parametrize("version", [FORMAT - 1, FORMAT + 1])
async def test_a_database_of_another_version_is_refused(version: int) -> None:
    engine = await MemoryEngine().open()

    async def write(tx: Transaction) -> None:
        tx.put(FORMAT_KEY, {"version": version})

    await Store(engine).run(write)
    with pytest.raises(CannotOpen) as refused:
        await onceward.App(engine).start()
    assert refused.value.code == "unsupported_format"
    assert refused.value.details == {"found": version, "supported": FORMAT}
