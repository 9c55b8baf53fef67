"""The commands of `tistream store` and their options."""

# ruff: noqa: PLC0415 - each imports what it runs when it runs

from __future__ import annotations

from typing import Annotated

import typer

from tistream.cli.base_url import DEFAULT_URL, checked
from tistream.cli.importing import importing

store_app = typer.Typer(no_args_is_help=True, help="Stores: what pushes a tenant's changes.")

Url = Annotated[str, typer.Option(help="Base URL of the API.", envvar="TISTREAM_URL", callback=checked)]


@store_app.callback()
def stores() -> None:
    """Stores: what pushes a tenant's changes."""


@store_app.command("retire")
def store_retire(
    store: Annotated[int, typer.Argument(help="Store id, as `tistream tenant status` names it.", min=0)],
    cluster: Annotated[str, typer.Option(help="Upstream cluster id.")],
    tenant: Annotated[str, typer.Option(help="Upstream tenant id.")],
    discard: Annotated[bool, typer.Option("--discard", help="Delete files of it that were never taken, too.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Let a store go that is gone for good: it leaves the status, and its files are deleted. Refused while keys wait
    for it. One that pushes again is found again."""
    with importing():
        from tistream.cli.client import ApiClient
        from tistream.cli.store import retire_store

    retire_store(ApiClient(url), cluster, tenant, store, discard=discard)
