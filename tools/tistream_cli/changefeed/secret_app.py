"""The commands of `tistream secret` and their options."""

# ruff: noqa: PLC0415 - each command imports its modules when it runs

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tistream_client.cli.base_url import DEFAULT_URL
from tistream_client.cli.importing import importing
from tistream_client.cli.options import Cluster, Tenant, Url
from tistream_client.cli.output import new_app

secret_app = new_app("Secrets that changefeeds refer to: ${secret:NAME} in a sink URI.")
Name = Annotated[str, typer.Argument(help="The secret's name: a-z, 0-9, `.` and `-`.")]


@secret_app.command("put")
def secret_put(
    cluster: Cluster,
    tenant: Tenant,
    name: Name,
    file: Annotated[Path | None, typer.Option(help="A file with the value. Default: a line of stdin.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Store a secret, and replace one of the same name. No command returns its value."""
    with importing():
        from tistream_cli.changefeed.secret import put_secret
        from tistream_client.cli.api_client import ApiClient

    put_secret(ApiClient(url), cluster, tenant, name, file)


@secret_app.command("list")
def secret_list(cluster: Cluster, tenant: Tenant, url: Url = DEFAULT_URL) -> None:
    """List the names of the secrets, and the changefeeds that refer to them."""
    with importing():
        from tistream_cli.changefeed.secret import list_secrets
        from tistream_client.cli.api_client import ApiClient

    list_secrets(ApiClient(url), cluster, tenant)


@secret_app.command("remove")
def secret_remove(cluster: Cluster, tenant: Tenant, name: Name, url: Url = DEFAULT_URL) -> None:
    """Remove a secret that no changefeed refers to."""
    with importing():
        from tistream_cli.changefeed.secret import remove_secret
        from tistream_client.cli.api_client import ApiClient

    remove_secret(ApiClient(url), cluster, tenant, name)
