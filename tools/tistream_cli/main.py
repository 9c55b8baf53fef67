"""The entry point of the `tistream` command. It imports other modules only inside a block that handles Ctrl-C."""

from __future__ import annotations

from tistream_client.cli.main import run

TYPE_CHECKING = False  # without an import of typing
if TYPE_CHECKING:
    from typing import Any


def main() -> None:
    """Run the command."""

    def load() -> Any:
        from tistream_cli.app import app, load_commands  # noqa: PLC0415

        load_commands()
        return app

    run(load)
