"""A server ends well on a signal, however soon it comes."""

import signal
from pathlib import Path

import pytest

from tests.server_process import ServerProcess


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_just_after_the_server_is_heard_of_ends_it_well(
    tmp_path: Path, number: signal.Signals
) -> None:
    with ServerProcess(tmp_path) as server:
        assert server.stop(number) == 0
    assert "Traceback" not in server.log.read_text()
