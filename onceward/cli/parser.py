"""Argument parsers with one-line errors, short usage, and arguments that are added on first use."""

import argparse
import difflib
import shutil
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from onceward.cli.display import complain
from onceward.errors import TABLE

Fill = Callable[["Parser"], None]


class Parser(argparse.ArgumentParser):
    """A parser of a command, or of a group of commands.

    `fill` adds its arguments when they are needed, so that a command loads its own modules only.
    """

    def __init__(
        self,
        prog: str,
        *,
        description: str = "",
        example: str = "",
        fill: Fill | None = None,
        color: bool = False,
    ) -> None:
        """`color` is given by `argparse` of Python 3.14, whose help has colours by default."""
        super().__init__(
            prog=prog,
            description=description,
            epilog=f"example: {example}" if example else None,
            add_help=False,
            allow_abbrev=False,
            formatter_class=_Formatter,
        )
        self.color = color
        self._positionals.title = "arguments"
        self.add_argument("-h", "--help", action="help", help="Show this help")
        self._fill = fill
        self._commands: argparse._SubParsersAction[Parser] | None = None
        self._sections: dict[str, list[tuple[str, str]]] = {}

    @property
    def commands(self) -> "dict[str, Parser]":
        """The commands of a group by name; empty for a command."""
        return {} if self._commands is None else dict(self._commands.choices)

    def add_command(
        self, name: str, help_: str, fill: Fill, example: str = "", *, section: str = "commands"
    ) -> "Parser":
        """Add a command to a group. `help_` is an imperative of at most 60 characters."""
        if self._commands is None:
            self._commands = self.add_subparsers(prog=self.prog, parser_class=Parser)
            self.set_defaults(run=self._without_command)
        self._sections.setdefault(section, []).append((name, help_))
        return self._commands.add_parser(name, description=f"{help_}.", example=example, fill=fill)

    def complete(self) -> "Parser":
        """Add the arguments that were not added yet."""
        fill, self._fill = self._fill, None
        if fill is not None:
            fill(self)
        return self

    def complete_all(self) -> "Parser":
        """Add the arguments of this parser and of all commands in it."""
        for command in self.complete().commands.values():
            command.complete_all()
        return self

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        found, unknown = super(Parser, self.complete()).parse_known_args(args, namespace)
        # Here, so that the error refers to the help of this command.
        if unknown and unknown[0].startswith("-"):
            known = [name for name in self._option_string_actions if name.startswith("--")]
            self.error(f"unknown option {unknown[0]}; {suggest(unknown[0], known)}")
        if unknown:
            self.error(f"unexpected argument {unknown[0]!r}")
        return found, unknown

    def format_usage(self) -> str:
        """The command with its positional arguments. The help lists the options."""
        words = ["usage:", self.complete().prog]
        for action in self._get_positional_actions():
            if action is not self._commands:
                name = str(action.metavar)
                words.append(f"{name} [{name} …]" if action.nargs == "+" else name)
        return " ".join([*words, "COMMAND …" if self.commands else "[OPTION …]"]) + "\n"

    def format_help(self) -> str:
        usage = self.format_usage()
        if not self.commands:
            self.usage = usage.removeprefix("usage: ").rstrip().replace("%", "%%")
            return super().format_help()
        columns = shutil.get_terminal_size().columns
        parts = [usage, _filled(self.description or "", columns)]
        for title, rows in self._sections.items():
            parts.append("\n".join([f"{title}:", *_rows(rows, columns)]))
        options = [one for one in self._get_optional_actions() if one.help]
        rows = [(", ".join(one.option_strings), str(one.help)) for one in options]
        parts.append("\n".join(["options:", *_rows(rows, columns)]))
        parts += [_filled(self.epilog, columns)] if self.epilog else []
        return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith("?") else "."
        complain(f"{message}{end} Run `{self.prog} --help`. [bad_request]")
        self.exit(TABLE["bad_request"].exit)

    def _without_command(self, _: argparse.Namespace) -> int:
        self.error(f"expected a command: {', '.join(self.commands)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        hint = suggest(str(value), [str(choice) for choice in action.choices])
        if action is self._commands:
            raise argparse.ArgumentError(None, f"unknown command {value!r}; {hint}")
        raise argparse.ArgumentError(action, f"unknown value {value!r}; {hint}")


def suggest(word: str, known: Iterable[str]) -> str:
    """The known word that is most similar, or all of them."""
    known = list(known)
    close = difflib.get_close_matches(word, known, 1)
    return f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(known)}"


def _rows(rows: Sequence[tuple[str, str]], columns: int) -> list[str]:
    first = max(len(name) for name, _ in rows)
    room = max(columns - first - 4, 20)
    return [
        f"  {name if number == 0 else '':{first}}  {line}"
        for name, text in rows
        for number, line in enumerate(_lines(text, room))
    ]


def _filled(text: str, columns: int) -> str:
    return "\n".join(_lines(text, max(columns, 20)))


def _lines(text: str, columns: int) -> list[str]:
    # Breaking at a hyphen would split names of options.
    return textwrap.wrap(text, columns, break_on_hyphens=False)


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return _lines(text, width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.indent("\n".join(_lines(text, width)), indent)
