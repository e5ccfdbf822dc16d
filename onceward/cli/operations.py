"""Commands for the operations of a server, made from their declarations: `onceward NOUN VERB`."""

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from onceward.api import NOUNS, OPERATIONS, messages
from onceward.api.arguments import Argument, arguments
from onceward.api.operation import Operation
from onceward.cli import follow
from onceward.cli.behaviours import BEHAVIOURS, EXAMPLES, fill_console
from onceward.cli.calls import add_server_options, call, connect
from onceward.cli.display import print_json
from onceward.cli.options import add_option, is_flat, option_name, read_options
from onceward.cli.parser import Parser

if TYPE_CHECKING:
    from onceward.cli.client import RecordingClient

_SECTION = "call a server"
# For programs that know nothing else of the server, not for people.
_LEFT_OUT = ("plain_timers",)


def commands() -> dict[str, list[Operation[Any]]]:
    """The operations that are commands, by noun."""
    found: dict[str, list[Operation[Any]]] = {}
    for operation in OPERATIONS.values():
        if operation.kind == "call" and operation.noun not in _LEFT_OUT:
            found.setdefault(operation.noun, []).append(operation)
    return found


def add_commands(parser: Parser) -> None:
    """Add the short forms, and a group of commands for each noun."""
    _add_call(parser, "send", messages.SEND, section=_SECTION)
    help_ = "Create a link that signs in to the console"
    parser.add_command("console", help_, fill_console, section=_SECTION)
    for noun, operations in commands().items():
        text = NOUNS[noun].removeprefix("Operations on ").removeprefix("the ").rstrip(".")
        text = text.removeprefix(f"{noun}: ")
        fill = partial(_fill_noun, operations)
        parser.add_command(noun, text[:1].upper() + text[1:], fill, section=_SECTION)


def _fill_noun(operations: list[Operation[Any]], parser: Parser) -> None:
    for operation in operations:
        _add_call(parser, operation.verb.replace("_", "-"), operation)
    if operations[0].noun == "jobs":
        parser.add_command("follow", follow.HELP, follow.fill_follow, follow.EXAMPLE)


def _add_call(
    parser: Parser, name: str, operation: Operation[Any], *, section: str = "commands"
) -> None:
    fill = partial(_fill_call, operation)
    example = EXAMPLES.get(operation.name, "")
    command = parser.add_command(name, operation.summary, fill, example, section=section)
    behaviour = BEHAVIOURS.get(operation.name)
    exits = behaviour.exits if behaviour is not None else ""
    about = " ".join(text for text in (operation.description, exits) if text)
    command.description = f"{operation.summary}. {about}".rstrip()


def _fill_call(operation: Operation[Any], parser: Parser) -> None:
    known = _arguments(operation)
    plain = [one for one in known if not is_flat(one)]
    names = {name: option_name(one) for one in plain for name in (one.name, one.field)}
    for argument in known:
        add_option(parser, argument, names)
    behaviour = BEHAVIOURS.get(operation.name)
    if behaviour is not None and behaviour.add is not None:
        behaviour.add(parser)
    add_server_options(parser)
    parser.set_defaults(run=partial(_run, operation))


def _arguments(operation: Operation[Any]) -> list[Argument]:
    behaviour = BEHAVIOURS.get(operation.name)
    hides = behaviour.hides if behaviour is not None else ()
    return [one for one in arguments(operation) if one.name not in hides]


def _run(operation: Operation[Any], namespace: argparse.Namespace) -> int:
    from onceward.cli.views import show

    given = read_options(_arguments(operation), namespace)
    behaviour = BEHAVIOURS.get(operation.name)

    async def run(client: "RecordingClient") -> Any:
        if behaviour is not None and behaviour.run is not None:
            return await behaviour.run(client, dict(given), namespace)
        return await call(client, operation, given)

    response = connect(run, namespace)
    if namespace.json:
        print_json(response)
    else:
        show(operation, response, given)
    if behaviour is None or behaviour.exit is None or not given.get("wait_s"):
        return 0
    return behaviour.exit(response)
