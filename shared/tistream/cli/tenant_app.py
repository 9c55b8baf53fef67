"""The commands of `tistream tenant` and their options."""

# ruff: noqa: PLC0415 - each imports what it runs when it runs

from __future__ import annotations

from typing import Annotated

import typer

from tistream.cli.base_url import DEFAULT_URL, checked
from tistream.cli.importing import importing

tenant_app = typer.Typer(no_args_is_help=True, help="Tenants: the upstream TiDBs whose changes are captured.")

Url = Annotated[str, typer.Option(help="Base URL of the API.", envvar="TISTREAM_URL", callback=checked)]
Cluster = Annotated[str, typer.Option(help="Upstream cluster id.")]
Tenant = Annotated[str, typer.Option(help="Upstream tenant id.")]


@tenant_app.command("create")
def tenant_create(
    cluster: Cluster,
    tenant: Tenant,
    retention: Annotated[
        str | None, typer.Option(help="How long its rows are kept: 7d, 36h, forever. Without: as the platform has it.")
    ] = None,
    kms_key: Annotated[
        str | None, typer.Option(help="Key id or ARN that its objects are encrypted with (SSE-KMS). Without: none.")
    ] = None,
    index_keys: Annotated[
        bool | None,
        typer.Option("--index-keys/--no-index-keys", help="Keep its index entries. Without: as the sorters have it."),
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Register a tenant."""
    with importing():
        from tistream.cli.client import ApiClient
        from tistream.cli.tenant import create_tenant

    create_tenant(ApiClient(url), cluster, tenant, retention, kms_key, index_keys)


@tenant_app.command("retention")
def tenant_retention(
    cluster: Cluster,
    tenant: Tenant,
    retention: Annotated[str, typer.Argument(help="7d, 36h, forever.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Say how long a tenant's rows are kept after their commit; at least an hour."""
    with importing():
        from tistream.cli.client import ApiClient
        from tistream.cli.tenant import set_retention

    set_retention(ApiClient(url), cluster, tenant, retention)


@tenant_app.command("key")
def tenant_key(
    cluster: Cluster,
    tenant: Tenant,
    kms_key: Annotated[str, typer.Argument(help="Key id or ARN of the object store's key management; none: no key.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Say which key a tenant's new objects are encrypted with (SSE-KMS). What was written stays under its old key."""
    with importing():
        from tistream.cli.client import ApiClient
        from tistream.cli.tenant import set_key

    set_key(ApiClient(url), cluster, tenant, kms_key)


@tenant_app.command("pause")
def tenant_pause(cluster: Cluster, tenant: Tenant, url: Url = DEFAULT_URL) -> None:
    """Take nothing more of a tenant in. What is there is served."""
    with importing():
        from tistream.cli.client import ApiClient
        from tistream.cli.tenant import pause_tenant

    pause_tenant(ApiClient(url), cluster, tenant, paused=True)


@tenant_app.command("resume")
def tenant_resume(cluster: Cluster, tenant: Tenant, url: Url = DEFAULT_URL) -> None:
    """Let a paused tenant go on where it was."""
    with importing():
        from tistream.cli.client import ApiClient
        from tistream.cli.tenant import pause_tenant

    pause_tenant(ApiClient(url), cluster, tenant, paused=False)


@tenant_app.command("delete")
def tenant_delete(
    cluster: Cluster,
    tenant: Tenant,
    confirm: Annotated[
        str, typer.Option(prompt="The tenant's name once more, to delete it with all that it has", help="Its name.")
    ],
    grace: Annotated[str, typer.Option(help="How long it may be taken back: 7d, 36h, 90m, 0.")] = "24h",
    url: Url = DEFAULT_URL,
) -> None:
    """Delete a tenant: change files, rows, schema, usage, and what tokens grant of it. Until then it is paused."""
    with importing():
        from tistream.cli.client import ApiClient
        from tistream.cli.tenant import delete_tenant

    delete_tenant(ApiClient(url), cluster, tenant, confirm, grace)


@tenant_app.command("keep")
def tenant_keep(cluster: Cluster, tenant: Tenant, url: Url = DEFAULT_URL) -> None:
    """Take back that a tenant is to be deleted."""
    with importing():
        from tistream.cli.client import ApiClient
        from tistream.cli.tenant import keep_tenant

    keep_tenant(ApiClient(url), cluster, tenant)


@tenant_app.command("list")
def tenant_list(cluster: Cluster, url: Url = DEFAULT_URL) -> None:
    """The tenants of a cluster, one a line."""
    with importing():
        from tistream.cli.client import ApiClient
        from tistream.cli.tenant import list_tenants

    list_tenants(ApiClient(url), cluster)


@tenant_app.command("status")
def tenant_status(cluster: Cluster, tenant: Tenant, url: Url = DEFAULT_URL) -> None:
    """How far a tenant has come, what holds it, and which node has what of it, as JSON."""
    with importing():
        from tistream.cli.client import ApiClient
        from tistream.cli.tenant import tenant_status as show_status

    show_status(ApiClient(url), cluster, tenant)


@tenant_app.command("usage")
def tenant_usage(
    cluster: Cluster,
    tenant: Tenant,
    start: Annotated[
        str | None, typer.Option("--from", help="First hour, in UTC: 2026-11-21 or 2026-11-21T10:00. Without: a day.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="The hour behind the last one, likewise.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """What a tenant has used, by hour: bytes in, stored and served, rows, requests to object storage."""
    with importing():
        from tistream.cli.client import ApiClient
        from tistream.cli.usage import show_usage

    show_usage(ApiClient(url), cluster, tenant, (start, end), as_json)


@tenant_app.command("quotas")
def tenant_quotas(
    cluster: Cluster,
    tenant: Tenant,
    quotas: Annotated[
        list[str] | None,
        typer.Argument(help="To change: requests_per_second=50. 0: as much as it likes; default: as the settings say."),
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """What a tenant may use, and what it stores now, as JSON; changes what is named."""
    with importing():
        from tistream.cli.client import ApiClient
        from tistream.cli.usage import quotas_of

    quotas_of(ApiClient(url), cluster, tenant, quotas or [])
