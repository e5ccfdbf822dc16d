"""The command line of the demonstration."""

import socket

import pytest

from apps.demo.__main__ import main


def test_the_demonstration_tells_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for text in ("kill the server", "--port", "--folder", "--no-traffic", "Ctrl-C"):
        assert text in said


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--port", "http"), 2, "invalid int value: 'http'"),
        (("--port", "70000"), 78, "cannot listen on 127.0.0.1:70000"),
        (("--applications", "0"), 2, "--applications must be 1 to 500, not 0"),
        (("--applications", "501"), 2, "--applications must be 1 to 500, not 501"),
        (("--folder", "/dev/null/demo"), 78, "cannot use --folder"),
        (("--host=0.0.0.0",), 2, "unrecognized arguments: --host=0.0.0.0"),
        (("sofa",), 2, "unrecognized arguments: sofa"),
    ],
)
def test_a_demonstration_that_cannot_be_is_refused(
    arguments: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err


def test_a_port_that_is_taken_is_said_to_be_so(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--port", str(port)]) == 78
    said = capsys.readouterr().err
    assert said.startswith(f"apps.demo: cannot listen on 127.0.0.1:{port}")
    assert "make demo PORT=" in said
    assert said.count("\n") == 1
