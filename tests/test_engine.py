import os
from pathlib import Path
from typing import Any

import pytest

from onceward import engine
from onceward.engine.base import Put
from onceward.engine.memory import MemoryEngine
from onceward.engine.sqlite import SQLiteEngine
from onceward.errors import BadInput


async def test_open_opens_the_engine_that_a_url_names(tmp_path: Path) -> None:
    for url in ("memory://", f"sqlite:///{tmp_path}/app.db"):
        opened = await engine.open(url)
        await opened.commit([Put(("p", "a"), b"1")], 0)
        assert [record.value for record in await opened.scan("p", 0)] == [b"1"]
        await opened.close()
    assert (tmp_path / "app.db").exists()


def test_memory_is_a_new_memory_each_time() -> None:
    one, other = engine.create("memory://"), engine.create("memory://")
    assert isinstance(one, MemoryEngine)
    assert isinstance(other, MemoryEngine)
    assert one.memory is not other.memory


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///app.db", "app.db"),
        ("sqlite:///data/app.db", "data/app.db"),
        ("sqlite:////var/lib/app.db", "/var/lib/app.db"),
        ("sqlite:///my%20app%3F.db", "my app?.db"),
    ],
)
def test_a_sqlite_url_names_a_file_here_or_by_its_absolute_path(url: str, path: str) -> None:
    made = engine.create(url)
    assert isinstance(made, SQLiteEngine)
    assert made.path == os.path.abspath(path)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "app.db",
        "/var/lib/app.db",
        "sqlite:app.db",
        "sqlite://app.db",
        "sqlite://",
        "sqlite:///",
        "sqlite:///app.db?mode=ro",
        "sqlite:///app.db#x",
        "memory://name",
        "memory:///path",
        "mysql://localhost/app",
    ],
)
def test_a_url_that_names_no_engine_is_refused_with_what_would(url: str) -> None:
    with pytest.raises(BadInput) as refused:
        engine.create(url)
    assert refused.value.code == "bad_engine_url"
    assert repr(url) in refused.value.message


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqlite:///\0", "contains NUL; remove it"),
        ("sqlite:///a%00b", "contains NUL; remove it"),
        ("sqlite:///\ud800", "surrogates"),
        ("postgresql://ann:secret@[::1/app", "Invalid IPv6 URL"),
        *((odd, f"not {type(odd).__name__}") for odd in (None, 5, True, b"memory://", [], {})),
    ],
)
def test_what_is_no_url_at_all_is_refused_and_no_password_is_told(url: Any, told: str) -> None:
    with pytest.raises(BadInput, match=told) as refused:
        engine.create(url)
    assert refused.value.code == "bad_engine_url"
    assert "secret" not in refused.value.message
