"""The entry point of the `tistream` command. Light: what the command needs is imported where Ctrl-C is looked after."""

from __future__ import annotations

import sys

from tistream.cli.importing import INTERRUPTED, importing


def main() -> None:
    """Run the command: what goes wrong is one line on stderr and status 1; wrong usage is 2, Ctrl-C 130."""
    with importing():
        from tistream.cli.app import app, load_commands  # noqa: PLC0415
        from tistream.cli.errors import CliError  # noqa: PLC0415

        load_commands()
    try:
        app()
    except CliError as error:
        sys.stderr.write(f"tistream: {error}\n")
        raise SystemExit(error.status) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
