"""The commands of `tistream source` and their options."""

# ruff: noqa: PLC0415 - each command imports its modules when it runs

from __future__ import annotations

from typing import Annotated

import typer

from tistream_cli.base_url import DEFAULT_URL, checked
from tistream_cli.importing import importing

source_app = typer.Typer(no_args_is_help=True, help="Sources: TiKV log backups that TiStream reads for a tenant.")

Url = Annotated[str, typer.Option(help="Base URL of the API.", envvar="TISTREAM_URL", callback=checked)]
Cluster = Annotated[str, typer.Option(help="Upstream cluster id.")]
Tenant = Annotated[str, typer.Option(help="Upstream tenant id.")]


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
        from tistream_cli.client import ApiClient
        from tistream_cli.commands.source import add_source

    add_source(ApiClient(url), cluster, tenant, log_backup, br_full)


@source_app.command("list")
def source_list(
    cluster: Cluster,
    tenant: Tenant,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Show the progress of a tenant's sources, and what they wait for."""
    with importing():
        from tistream_cli.client import ApiClient
        from tistream_cli.commands.source import list_sources

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
        from tistream_cli.client import ApiClient
        from tistream_cli.commands.source import remove_source

    remove_source(ApiClient(url), cluster, tenant, source)
