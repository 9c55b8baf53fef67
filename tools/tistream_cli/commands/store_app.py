"""The commands of `tistream store` and their options."""

# ruff: noqa: PLC0415 - each command imports its modules when it runs

from __future__ import annotations

from typing import Annotated

import typer

from tistream_cli.base_url import DEFAULT_URL, checked
from tistream_cli.importing import importing

store_app = typer.Typer(no_args_is_help=True, help="Stores: the TiKV nodes that push a tenant's changes.")

Url = Annotated[str, typer.Option(help="Base URL of the API.", envvar="TISTREAM_URL", callback=checked)]


@store_app.callback()
def stores() -> None:
    """Stores: the TiKV nodes that push a tenant's changes."""


@store_app.command("retire")
def store_retire(
    store: Annotated[int, typer.Argument(help="Store id, as `tistream tenant status` shows it.", min=0)],
    cluster: Annotated[str, typer.Option(help="Upstream cluster id.")],
    tenant: Annotated[str, typer.Option(help="Upstream tenant id.")],
    discard: Annotated[
        bool, typer.Option("--discard", help="Also delete its files that were never processed.")
    ] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Retire a store that will not return: it is removed from the status, and its files are deleted. Rejected while
    keys wait for its files. A store that pushes again is discovered again."""
    with importing():
        from tistream_cli.client import ApiClient
        from tistream_cli.commands.store import retire_store

    retire_store(ApiClient(url), cluster, tenant, store, discard=discard)
