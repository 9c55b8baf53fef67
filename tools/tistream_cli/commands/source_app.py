"""The commands of `tistream source` and their options."""

# ruff: noqa: PLC0415 - each command imports its modules when it runs

from __future__ import annotations

from typing import Annotated

import typer

from tistream_client.cli.base_url import DEFAULT_URL
from tistream_client.cli.importing import importing
from tistream_client.cli.options import Cluster, Json, Tenant, Url
from tistream_client.cli.output import new_app

source_app = new_app("Sources: TiKV log backups that TiStream reads for a tenant.")


@source_app.command("add")
def source_add(
    cluster: Cluster,
    tenant: Tenant,
    log_backup: Annotated[str, typer.Option(help="Prefix given to `br log start`, as s3://bucket/prefix.")],
    br_full: Annotated[
        str | None,
        typer.Option(
            help="A full backup of BR: gives the schema, and the rows from before the log. Default: the schema_snap "
            "that was pushed, and no rows."
        ),
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Read a tenant's changes from a TiKV log backup."""
    with importing():
        from tistream_cli.commands.source import add_source
        from tistream_client.cli.api_client import ApiClient

    add_source(ApiClient(url), cluster, tenant, log_backup, br_full)


@source_app.command("list")
def source_list(
    cluster: Cluster,
    tenant: Tenant,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Show the progress of a tenant's sources, and what they wait for."""
    with importing():
        from tistream_cli.commands.source import list_sources
        from tistream_client.cli.api_client import ApiClient

    list_sources(ApiClient(url), cluster, tenant, as_json=as_json)


@source_app.command("remove")
def source_remove(
    source: Annotated[str, typer.Argument(help="Source id, as `tistream source list` shows it.")],
    cluster: Cluster,
    tenant: Tenant,
    url: Url = DEFAULT_URL,
) -> None:
    """Stop reading a source. The tenant keeps the rows that it has."""
    with importing():
        from tistream_cli.commands.source import remove_source
        from tistream_client.cli.api_client import ApiClient

    remove_source(ApiClient(url), cluster, tenant, source)
