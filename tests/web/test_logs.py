"""Logs, for people and for programs."""

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from onceward.web import logs
from onceward.web.logs import JsonFormatter


@pytest.fixture(autouse=True)
def _root_logger_stays() -> Iterator[None]:
    root, uvicorn = logging.getLogger(), logging.getLogger("uvicorn.error")
    before = root.handlers[:], root.level, uvicorn.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    uvicorn.setLevel(before[2])


def record(message: str, *args: object, error: bool = False) -> logging.LogRecord:
    found = sys.exc_info() if error else None
    return logging.LogRecord("onceward.x", logging.WARNING, "f.py", 1, message, args, found)


def test_a_record_is_one_line_of_json() -> None:
    made = record("two\nlines: %s", "ü")
    made.created = 1_700_000_000.25
    line = JsonFormatter().format(made)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "level": "warning",
        "logger": "onceward.x",
        "message": "two\nlines: ü",
    }


def test_an_error_is_told_with_where_it_was_raised() -> None:
    try:
        raise ValueError("oh no")
    except ValueError:
        line = json.loads(JsonFormatter().format(record("failed", error=True)))
    assert line["message"] == "failed"
    assert "test_logs.py" in line["error"]
    assert line["error"].endswith("ValueError: oh no")


def test_what_is_no_text_is_told_all_the_same() -> None:
    assert json.loads(JsonFormatter().format(record("%s", "\ud800")))["message"] == "\ud800"


@pytest.mark.parametrize("form", ["json", "text"])
def test_it_is_set_up_in_a_form_from_a_level_on(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.set_up(form, "warning")
    logging.getLogger("onceward.x").info("not this")
    logging.getLogger("onceward.x").warning("but this")
    [line] = capsys.readouterr().err.splitlines()
    if form == "json":
        assert json.loads(line)["message"] == "but this"
    else:
        assert line.endswith("WARNING onceward.x: but this")


def test_what_uvicorn_says_of_its_start_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("text", "debug")
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("uvicorn.error").error("but this is said")
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("but this is said")


def test_what_a_message_quotes_begins_no_line_and_does_not_speak_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.set_up("text", "info")
    quoted = "a\n2026-01-01 ERROR forged\r\x1b[2J\u2028\udc80é"
    logging.getLogger("onceward.x").warning("no queue %s", quoted)
    [line] = capsys.readouterr().err.split("\n")[:-1]
    assert line.endswith(r"no queue a\n2026-01-01 ERROR forged\r\x1b[2J\u2028\udc80é")
