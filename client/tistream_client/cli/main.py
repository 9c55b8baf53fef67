"""The entry point of `tistream` where only the client is installed. The platform's command has one like it.

All imports but those of `importing` are inside of blocks that handle Ctrl-C.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import sys

from tistream_client.cli.importing import INTERRUPTED, importing

TYPE_CHECKING = False  # without an import of typing
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    import typer


def run(load: Callable[[], Any]) -> None:
    """Run the command that `load` makes. An error prints one line on stderr, and exits with its status: 1 for what has
    to be changed, 75 for what may succeed later. Wrong usage exits with status 2, Ctrl-C with 130."""
    try:
        with importing():
            from tistream_client.cli.errors import FIX, CliError

            app = narrowed(load(), sys.argv[1:])
        try:
            app()
        except CliError as error:
            sys.stderr.write(f"tistream: {error}\n")
            raise SystemExit(error.status) from None
        except OSError as error:  # of a file that the command writes: the disk is full, or permission is missing
            sys.stderr.write(f"tistream: {error}\n")
            raise SystemExit(FIX) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def narrowed(app: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """A copy of the application that has only the command or group that the first word names, because preparing the
    options of all commands takes longer than most commands run. The application itself if the word names none."""
    from copy import copy

    if not words:
        return app
    commands = [one for one in app.registered_commands if _name(one.name, one.callback) == words[0]]
    groups = [one for one in app.registered_groups if one.name == words[0]]
    if not commands and not groups:
        return app
    only = copy(app)
    only.registered_commands, only.registered_groups = commands, groups
    return only


def _name(given: str | None, callback: Callable[..., Any] | None) -> str:
    return given or ("" if callback is None else callback.__name__.replace("_", "-"))


def main() -> None:
    """Run `tistream`: the platform's command if the platform is installed beside the client."""

    def load() -> Any:
        from tistream_client.cli.app import app

        return app

    try:
        with importing():
            from importlib import import_module
            from importlib.util import find_spec

            platform = None if find_spec("tistream_cli") is None else import_module("tistream_cli.main")
        if platform is None:
            run(load)
        else:
            platform.main()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
