"""How commands show results: as text for people, or as JSON for programs. `-o` chooses, on every command."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from enum import Enum
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup


class Output(str, Enum):
    """The values of `-o`."""

    TABLE = "table"
    JSON = "json"

    def __str__(self) -> str:
        return self.value


# Commands that run processes until they are stopped, and have no result.
_RUN = frozenset({"up", "demo", "demo-restore", "demo-connect", "demo-kafka", "simulate", "agent"})
_chosen: ContextVar[Output | None] = ContextVar("chosen", default=None)


def _remember(output: Output | None) -> Output | None:
    _chosen.set(output)
    return output


def json_wanted() -> bool:
    """Whether the result is wanted as JSON."""
    return _chosen.get() is Output.JSON


def document_wanted() -> bool:
    """Whether the result of a command that returns one document is wanted as JSON. Without `-o` it is unless stdout is
    a terminal."""
    return _chosen.get() is Output.JSON or (_chosen.get() is None and not sys.stdout.isatty())


def either(as_json: bool) -> bool:
    """Whether `--json` or `-o json` was given. `as_json`: whether `--json` was; `json_wanted` does not see that one.
    For Typer's `callback`."""
    return as_json or json_wanted()


def colored(wanted: bool | None, out: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether output has colours: as `wanted`, or if it goes to a terminal and $NO_COLOR is not set."""
    return wanted if wanted is not None else out.isatty() and not environ.get("NO_COLOR")


def say(text: str, result: Mapping[str, object]) -> None:
    """Print what a command did: the text or, with `-o json`, the result."""
    if json_wanted():
        show_document(result)
    else:
        sys.stdout.write(f"{text}\n")


def show_document(found: Any) -> None:
    """Print a document as indented JSON."""
    sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


def show_list(
    name: str, items: Sequence[Mapping[str, Any]], head: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Print a list: `rows` with aligned columns or, with `-o json`, `{name: items}`."""
    if json_wanted():
        show_document({name: list(items)})
    else:
        print_table(head, rows)


def cell(value: Any) -> str:
    """Format a value as text on one line, without characters that control a terminal."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        sys.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n")


def _only_output(
    output: Annotated[
        Output | None, typer.Option("-o", "--output", is_eager=True, callback=_remember, help="Form of the result.")
    ] = None,
) -> None:
    """A command that does nothing. `_output_option` takes the option `-o` from it."""


def _output_option() -> Any:
    carrier = typer.Typer(add_completion=False)
    carrier.command()(_only_output)
    option: Any = typer.main.get_command(carrier).params[0]
    option.expose_value = False
    return option


class Group(TyperGroup):
    """A group of commands, each of which has the option `-o` unless it has one of its own or runs a process."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, with the option `-o`."""
        command: Any = super().get_command(ctx, cmd_name)
        if command is None or hasattr(command, "commands") or cmd_name in _RUN:
            return command
        if not any("-o" in param.opts for param in command.params):
            command.params.append(_output_option())
        return command


def new_app(help: str, **more: Any) -> typer.Typer:
    """A Typer application whose commands have `-o` and `-h`."""
    settings = {"help_option_names": ["-h", "--help"]}
    return typer.Typer(
        rich_markup_mode=None,
        cls=Group,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings=settings,
        help=help,
        **more,
    )
