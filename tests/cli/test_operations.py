"""Every operation has a command: its help, its options, and input of each type."""

import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from onceward import cli
from onceward.api import OPERATIONS
from onceward.api.arguments import arguments
from onceward.api.operation import Body, Operation, Query
from onceward.cli.behaviours import EXAMPLES
from onceward.cli.operations import commands
from onceward.cli.options import add_option, option_name, read_options
from onceward.cli.parser import Parser
from onceward.errors import BadInput

Capture = pytest.CaptureFixture[str]
CALLS = [operation for found in commands().values() for operation in found]


def words(operation: Operation[Any]) -> list[str]:
    return [operation.noun, operation.verb.replace("_", "-")]


def parser_of(*names: str) -> Parser:
    parser = cli.make_parser()
    for name in names:
        parser = parser.complete().commands[name]
    return parser.complete()


def test_every_call_is_a_command_except_plain_timers() -> None:
    others = {one.name for one in OPERATIONS.values() if one.kind == "call"}
    others -= {one.name for one in CALLS}
    assert {name.partition(".")[0] for name in others} == {"plain_timers"}
    assert len(CALLS) > 90


@pytest.mark.parametrize("operation", CALLS, ids=lambda one: one.name)
def test_the_help_of_a_command_has_all_of_its_arguments(
    operation: Operation[Any], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main([*words(operation), "--help"]) == 0
    text = capsys.readouterr().out
    assert operation.summary in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())
    for action in parser_of(*words(operation))._actions:
        assert action.help, f"{action.dest} has no description"
        for option in action.option_strings:
            assert option in text


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_understood(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *given = shlex.split(EXAMPLES[name])
    assert program == "onceward"
    found = cli.make_parser().parse_args(given)
    assert found.run.args == (OPERATIONS[name],)
    read_options(arguments(OPERATIONS[name]), found)


def test_summaries_fit_into_lists_of_commands() -> None:
    parser = cli.make_parser().complete_all()
    for group in (parser, *parser.commands.values()):
        for rows in group._sections.values():
            assert [text for _, text in rows if len(text) > 62 or text.endswith(".")] == []


class Inner(msgspec.Struct, frozen=True):
    pauses_ms: tuple[int, ...] | None = None
    attempts_max: int | None = None
    timeout_ms: int | None = None


class Given(Body, kw_only=True):
    count: int
    names: list[str]
    text: str = ""
    rate: float = 1.5
    keep_ms: int | UnsetType | None = UNSET
    wait_ms: int = 1_500
    state: Literal["open", "shut"] | UnsetType = UNSET
    at: int | datetime | None = None
    due_ms: int | None = None
    value: Any = None
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    fields: tuple[str, ...] | UnsetType | None = UNSET
    levels: tuple[int, ...] = ()
    retry: Inner | UnsetType | None = UNSET
    fair: bool = False


class Asked(Query):
    everyone: bool = False


DOCS = {
    "text": "The text. It has a second sentence.",
    "rate": "The rate, up to `keep_ms`.",
    "keep_ms": "How long it is kept; None: forever.",
    "state": "The state.",
    "headers": "Headers of a call.",
    "everyone": "Whether to list all.",
}
OPERATION: Operation[Inner] = Operation(
    name="things.make",
    method="POST",
    path="/things/{id}",
    summary="Make a thing",
    body=Given,
    query=Asked,
    response=Inner,
)


def parser_of_all_types() -> Parser:
    parser = Parser("make")
    names = {one.field: option_name(one) for one in arguments(OPERATION)}
    for argument in arguments(OPERATION):
        doc = DOCS.get(argument.field, "")
        add_option(parser, msgspec.structs.replace(argument, doc=doc), names)
    return parser


def read(*given: str) -> dict[str, Any]:
    namespace = parser_of_all_types().parse_args(["one", "3", "ann", "ben", *given])
    found = read_options(arguments(OPERATION), namespace)
    assert (found.pop("id"), found.pop("count")) == ("one", 3)
    assert found.pop("names") == ["ann", "ben"]
    return found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ((), {}),
        (("--text", "none"), {"text": "none"}),
        (("--rate", "2"), {"rate": 2.0}),
        (("--keep-s", "0.5"), {"keep_s": 0.5}),
        (("--keep-s", "none"), {"keep_s": None}),
        (("--wait-s", "3"), {"wait_s": 3.0}),
        (("--state", "shut"), {"state": "shut"}),
        (("--at", "2000"), {"at": 2000}),
        (("--at", "2030-01-31T09:00:00Z"), {"at": datetime(2030, 1, 31, 9, tzinfo=UTC)}),
        (("--due-ms", "1970-01-01T00:00:01Z"), {"due_ms": 1000}),
        (("--value", "[1]"), {"value": [1]}),
        (("--meta", '{"a": 1}'), {"meta": {"a": 1}}),
        (("--header", "A: 1", "--header", "B:2:3"), {"headers": {"A": "1", "B": "2:3"}}),
        (("--field", "a", "--field", "b"), {"fields": ["a", "b"]}),
        (("--field", "none"), {"fields": None}),
        (("--levels", "1,2"), {"levels": [1, 2]}),
        (("--retry-pauses-s", "5,0.5"), {"retry": {"pauses_s": [5.0, 0.5]}}),
        (
            ("--retry-timeout-s", "2", "--retry-attempts-max", "7"),
            {"retry": {"attempts_max": 7, "timeout_s": 2.0}},
        ),
        (("--no-retry",), {"retry": None}),
        (("--fair",), {"fair": True}),
        (("--no-fair",), {"fair": False}),
        (("--everyone",), {"everyone": True}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options_are_read_by_type(given: tuple[str, ...], found: dict[str, Any]) -> None:
    assert read(*given) == found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--rate", "fast"), "--rate must be a number, not 'fast' [wrong_type]"),
        (
            ("--keep-s", "long"),
            "--keep-s must be in seconds, as in 90 or 0.5, not 'long' [wrong_type]",
        ),
        (("--state", "shutt"), "unknown --state 'shutt'; did you mean 'shut'? [wrong_type]"),
        (("--state", "lost"), "unknown --state 'lost'; use one of open, shut [wrong_type]"),
        (("--at", "soon"), "--at is a time as in 2030-01-31T09:00:00Z, or milliseconds since"),
        (("--at", "2030-01-31T09:00:00"), "--at is a time as in"),
        (("--due-ms", "1.5"), "--due-ms is a time as in"),
        (("--value", "{"), "--value is not JSON: "),
        (("--value", "lamp"), "; quote texts twice: '\"text\"' [not_json]"),
        (("--header", "A"), "--header must be NAME:VALUE, not 'A' [wrong_type]"),
        (("--levels", "1,x"), "--levels must be a whole number, not 'x' [wrong_type]"),
        (
            ("--retry-pauses-s", "5,soon"),
            "--retry-pauses-s must be in seconds, as in 90 or 0.5, not",
        ),
        (("--retry-attempts-max", "1.5"), "--retry-attempts-max must be a whole number, not '1.5'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_names_the_option_and_the_value(given: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadInput) as error:
        read(*given)
    assert message in str(error.value)
    assert error.value.kind.exit == 2


def test_a_bad_positional_argument_is_named_by_its_placeholder() -> None:
    namespace = parser_of_all_types().parse_args(["one", "many", "ann"])
    with pytest.raises(BadInput, match=r"COUNT must be a whole number, not 'many'"):
        read_options(arguments(OPERATION), namespace)


def test_help_is_the_first_sentence_with_the_default() -> None:
    text = " ".join(parser_of_all_types().format_help().split())
    assert text.startswith("usage: make ID COUNT NAME [NAME …] [OPTION …]")
    assert "--text TEXT Text --rate" in text
    assert "--rate N Rate, up to --keep-s [1.5]" in text
    assert "--keep-s S How long it is kept; none: forever" in text
    assert "--wait-s S [1.5]" in text
    assert "--state STATE State (open, shut)" in text
    assert "--header NAME:VALUE Headers of a call; repeatable" in text
    assert "--everyone List all" in text


@pytest.mark.parametrize("columns", [80, 100, 101, 102, 103])
def test_descriptions_refer_to_options(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = " ".join(parser_of("queues", "configure").format_help().split())
    assert "it doubles each time, up to --retry-max-s" in text
    assert "--policy-lane LANE " in parser_of("tables", "create").format_help()


def test_values_of_a_list_are_json_and_come_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    file = tmp_path / "messages.json"
    file.write_text('[{"body": 1}, {"body": 2}]')
    known = arguments(OPERATIONS["messages.send_many"])
    given = ["messages", "send-many", "orders", '{"body": 0}', "-"]
    with file.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        found = read_options(known, cli.make_parser().parse_args(given))
    assert found == {"queue": "orders", "messages": [{"body": 0}, {"body": 1}, {"body": 2}]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "expected a command: dev, serve, work, "),
        (("dance",), "unknown command 'dance'; use one of dev, serve, "),
        (("job",), "unknown command 'job'; did you mean 'jobs'? Run `onceward --help`."),
        (("jobs",), "expected a command: claim, "),
        (("jobs", "lits"), "unknown command 'lits'; did you mean 'list'? Run `onceward jobs --h"),
        (("jobs", "list", "--stat", "x"), "unknown option --stat; did you mean '--state'? Run `o"),
        (("jobs", "get"), "the following arguments are required: ID. Run `onceward jobs get -"),
        (("jobs", "get", "a", "b"), "unexpected argument 'b'. Run `onceward jobs get --help`."),
        (("jobs", "list", "--limit"), "argument --limit: expected one argument"),
        (("jobs", "settle", "a", "b"), "one of the arguments --done --not-done is required"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_is_one_line(given: tuple[str, ...], message: str, capsys: Capture) -> None:
    assert cli.main(given) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"onceward: {message}")
    assert shown.err.endswith("--help`. [bad_request]\n")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_lists_of_commands_fit_the_terminal(
    columns: int, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for noun in ([], *([noun] for noun in commands()), ["db"], ["server-key"]):
        assert cli.main([*noun, "--help"]) == 0
        assert all(len(line) <= columns for line in capsys.readouterr().out.splitlines())


def test_the_help_loads_no_client_and_no_store() -> None:
    script = (
        "import sys; from onceward import cli; cli.main(['--help']); "
        "cli.main(['queues', 'configure', '--help']); print(*sys.modules, file=sys.stderr)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ, timeout=60
    )
    loaded = set(shown.stderr.split())
    assert "onceward.api" in loaded
    heavy = {"aiohttp", "rich", "uvicorn", "apsw", "onceward.store", "onceward.client"}
    assert heavy & loaded == set()


def test_all_commands_are_completed_for_the_reference() -> None:
    parser = cli.make_parser().complete_all()
    done = [inner for group in parser.commands.values() for inner in group.commands.values()]
    assert len(done) > 90
    assert [inner.prog for inner in done if len(inner._actions) < 2] == ["onceward server-key new"]
