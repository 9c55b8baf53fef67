"""The entry point of the `tistream` command. It imports other modules only inside a block that handles Ctrl-C."""

from __future__ import annotations

import sys

from tistream_cli.importing import INTERRUPTED, importing


def main() -> None:
    """Run the command. An error prints one line on stderr and exits with status 1. Wrong usage exits with status 2,
    Ctrl-C with 130."""
    with importing():
        from tistream_cli.app import app, load_commands  # noqa: PLC0415
        from tistream_cli.errors import CliError  # noqa: PLC0415

        load_commands()
    try:
        app()
    except CliError as error:
        sys.stderr.write(f"tistream: {error}\n")
        raise SystemExit(error.status) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
