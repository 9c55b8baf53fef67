"""The commands of `tistream store` and their options."""

# ruff: noqa: PLC0415 - each command imports its modules when it runs

from __future__ import annotations

from typing import Annotated

import typer

from tistream_client.cli.base_url import DEFAULT_URL
from tistream_client.cli.importing import importing
from tistream_client.cli.options import Cluster, Tenant, Url
from tistream_client.cli.output import new_app

store_app = new_app("Stores: the TiKV nodes that push a tenant's changes.")


@store_app.callback()
def stores() -> None:
    """Stores: the TiKV nodes that push a tenant's changes."""


@store_app.command("retire")
def store_retire(
    store: Annotated[int, typer.Argument(help="Store id, as `tistream tenant status` shows it.", min=0)],
    cluster: Cluster,
    tenant: Tenant,
    discard: Annotated[
        bool, typer.Option("--discard", help="Also delete its files that were never processed.")
    ] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Retire a store that will not return: it is removed from the status, and its files are deleted. Rejected while
    keys wait for its files. A store that pushes again is discovered again."""
    with importing():
        from tistream_cli.commands.store import retire_store
        from tistream_client.cli.api_client import ApiClient

    retire_store(ApiClient(url), cluster, tenant, store, discard=discard)
