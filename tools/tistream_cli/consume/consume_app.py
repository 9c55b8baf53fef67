"""The command `tistream consume` and its options."""

# ruff: noqa: PLC0415 - each command imports its modules when it runs

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tistream_client.cli.importing import importing
from tistream_client.cli.times import FORMS, parse_ts


def consume(
    source: Annotated[str, typer.Argument(help="The changefeed's sink URI: kafka://host:port,…/topic?protocol=….")],
    into: Annotated[
        str | None, typer.Option(help="ndjson (stdout), ndjson:FILE, or mysql://user:password@host:port.")
    ] = None,
    into_file: Annotated[
        Path | None,
        typer.Option(help="A file with the text of --into, so that no password is in the list of processes."),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="Another topic of the same changefeed; may be repeated.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The name under which a server stores the progress. Default: the topic.")
    ] = None,
    password_file: Annotated[Path | None, typer.Option(help="A file with the password of SASL.")] = None,
    repeats: Annotated[
        bool, typer.Option("--repeats", help="The producer delivers at least once, as TiCDC does: leave out repeats.")
    ] = False,
    until: Annotated[
        int | None, typer.Option(help=f"End once everything up to it has been written: {FORMS}.", parser=parse_ts)
    ] = None,
) -> None:
    """Read a changefeed's topics: whole transactions, in order, each once.

    A file or a server stores the progress together with the rows, so that the same command continues there.
    """
    with importing():
        from tistream_cli.consume.consume import ConsumeOptions, run_consume

    run_consume(ConsumeOptions(source, into, into_file, tuple(topic or ()), name, password_file, repeats, until))


def add_consume_command(app: typer.Typer) -> None:
    """Add `tistream consume` to the app."""
    app.command()(consume)
