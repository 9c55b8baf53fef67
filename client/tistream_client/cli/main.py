"""The entry point of `tistream` where only the client is installed. The platform's command has one like it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tistream_client.cli.errors import CliError
from tistream_client.cli.importing import INTERRUPTED, importing


def run(load: Callable[[], Any]) -> None:
    """Run the command that `load` makes. An error prints one line on stderr, and exits with its status: 1 for what has
    to be changed, 75 for what may succeed later. Wrong usage exits with status 2, Ctrl-C with 130."""
    with importing():
        app = load()
    try:
        app()
    except CliError as error:
        sys.stderr.write(f"tistream: {error}\n")
        raise SystemExit(error.status) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def main() -> None:
    """Run `tistream`: the platform's command if the platform is installed beside the client."""
    if find_spec("tistream_cli") is not None:
        import_module("tistream_cli.main").main()
        return

    def load() -> Any:
        from tistream_client.cli.app import app  # noqa: PLC0415

        return app

    run(load)
