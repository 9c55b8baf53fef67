"""The commands of `tistream` are built once in a process of tests (a pytest plugin). Typer's runner builds all of them
at each call, for a tenth of a second of a processor; a user's process does it once."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import typer
from typer import testing

build = testing._get_command


def commands_of(app: typer.Typer) -> int:
    """How many commands an app has by now: some come after its first use."""
    groups = [group.typer_instance for group in app.registered_groups]
    return len(app.registered_commands) + sum(commands_of(one) for one in groups if one is not None)


def _parameters(command: Any) -> Iterator[Any]:
    yield from command.params
    for one in getattr(command, "commands", {}).values():
        yield from _parameters(one)


@functools.cache
def _built(app: typer.Typer, _commands: int) -> tuple[Any, list[tuple[Any, Any]]]:
    """The command, and the callbacks of its parameters, which an earlier call may have changed."""
    command = build(app)
    return command, [(one, one.callback) for one in _parameters(command)]


def built(app: typer.Typer) -> Any:
    """An app's command, as it is when it has just been built."""
    command, callbacks = _built(app, commands_of(app))
    for parameter, callback in callbacks:
        parameter.callback = callback
    return command


testing._get_command = built
