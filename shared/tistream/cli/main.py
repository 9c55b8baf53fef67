"""The entry point of the `tistream` command. Light: what the command needs is imported where Ctrl-C is looked after."""

from __future__ import annotations

import os
import signal
import sys

_INTERRUPTED = 130  # as shells tell it: 128 and the number of SIGINT


def main() -> None:
    """Run the command: what goes wrong is one line on stderr and status 1; wrong usage is status 2; Ctrl-C is 130."""
    if interruptible := signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Imports take a second or two, and an exception in the middle of one may come out as anything.
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    from tistream.cli.app import app, load_commands  # noqa: PLC0415
    from tistream.cli.errors import CliError  # noqa: PLC0415

    load_commands()
    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        app()
    except CliError as error:
        sys.stderr.write(f"tistream: {error}\n")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None
