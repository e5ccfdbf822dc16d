from collections.abc import Iterator

import pytest

from tests.cli.commands import SETTINGS, Command
from tests.server_process import ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "onceward.toml").write_text(SETTINGS)
    with ServerProcess(folder) as server:
        yield server


@pytest.fixture
def command(server: ServerProcess) -> Command:
    return Command(server)
