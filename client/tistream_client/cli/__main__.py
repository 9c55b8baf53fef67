"""`python -m tistream_client.cli`: runs the client's commands."""

from tistream_client.cli.main import run

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typer


def _load() -> "typer.Typer":
    from tistream_client.cli.app import app  # noqa: PLC0415 - inside of a block that handles Ctrl-C

    return app


run(_load)
