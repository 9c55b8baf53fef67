"""The commands of `tistream tenant` and their options."""

# ruff: noqa: PLC0415 - each command imports its modules when it runs

from __future__ import annotations

from typing import Annotated

import typer

from tistream.model.tenant_kind import TenantKind
from tistream_client.cli.base_url import DEFAULT_URL
from tistream_client.cli.importing import importing
from tistream_client.cli.options import Cluster, Json, Tenant, Url
from tistream_client.cli.output import new_app
from tistream_client.cli.times import FORMS, parse_ts

tenant_app = new_app("Tenants: the upstream TiDBs whose changes are captured.")


@tenant_app.command("create")
def tenant_create(
    cluster: Cluster,
    tenant: Tenant,
    retention: Annotated[
        str | None, typer.Option(help="How long its rows are kept: 7d, 36h, forever. Default: the platform's setting.")
    ] = None,
    kms_key: Annotated[
        str | None, typer.Option(help="Key id or ARN that its objects are encrypted with (SSE-KMS). Default: none.")
    ] = None,
    index_keys: Annotated[
        bool | None,
        typer.Option("--index-keys/--no-index-keys", help="Keep its index entries. Default: the sorters' setting."),
    ] = None,
    kind: Annotated[
        TenantKind | None, typer.Option(help="tidb, or raw: the keys and values of RawKV. Default: tidb.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the tenant can be pulled.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Register a tenant."""
    with importing():
        from tistream_cli.commands.tenant import create_tenant, wait_for_snapshot
        from tistream_client.cli.api_client import ApiClient

    client = ApiClient(url)
    create_tenant(client, cluster, tenant, retention, kms_key, index_keys, kind)
    if wait:
        wait_for_snapshot(client, cluster, tenant)


@tenant_app.command("retention")
def tenant_retention(
    cluster: Cluster,
    tenant: Tenant,
    retention: Annotated[str, typer.Argument(help="7d, 36h, forever.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Set how long a tenant's rows are kept after their commit; at least an hour."""
    with importing():
        from tistream_cli.commands.tenant import set_retention
        from tistream_client.cli.api_client import ApiClient

    set_retention(ApiClient(url), cluster, tenant, retention)


@tenant_app.command("key")
def tenant_key(
    cluster: Cluster,
    tenant: Tenant,
    kms_key: Annotated[str, typer.Argument(help="Key id or ARN of the object store's key management; none: no key.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Set the key that encrypts a tenant's new objects (SSE-KMS). Existing objects keep their old key."""
    with importing():
        from tistream_cli.commands.tenant import set_key
        from tistream_client.cli.api_client import ApiClient

    set_key(ApiClient(url), cluster, tenant, kms_key)


@tenant_app.command("pause")
def tenant_pause(cluster: Cluster, tenant: Tenant, url: Url = DEFAULT_URL) -> None:
    """Pause a tenant: no more of its changes are processed. Existing rows are still served."""
    with importing():
        from tistream_cli.commands.tenant import pause_tenant
        from tistream_client.cli.api_client import ApiClient

    pause_tenant(ApiClient(url), cluster, tenant, paused=True)


@tenant_app.command("resume")
def tenant_resume(cluster: Cluster, tenant: Tenant, url: Url = DEFAULT_URL) -> None:
    """Resume a paused tenant."""
    with importing():
        from tistream_cli.commands.tenant import pause_tenant
        from tistream_client.cli.api_client import ApiClient

    pause_tenant(ApiClient(url), cluster, tenant, paused=False)


@tenant_app.command("delete")
def tenant_delete(
    cluster: Cluster,
    tenant: Tenant,
    confirm: Annotated[
        str, typer.Option(prompt="Repeat the tenant's name to delete it with all of its data", help="Its name.")
    ],
    grace: Annotated[str, typer.Option(help="Time in which it can be cancelled: 7d, 36h, 90m, 0.")] = "24h",
    url: Url = DEFAULT_URL,
) -> None:
    """Delete a tenant after a grace period: change files, rows, schema, usage, and tokens' grants for it. It is paused
    until then."""
    with importing():
        from tistream_cli.commands.tenant import delete_tenant
        from tistream_client.cli.api_client import ApiClient

    delete_tenant(ApiClient(url), cluster, tenant, confirm, grace)


@tenant_app.command("keep")
def tenant_keep(cluster: Cluster, tenant: Tenant, url: Url = DEFAULT_URL) -> None:
    """Cancel the deletion of a tenant."""
    with importing():
        from tistream_cli.commands.tenant import keep_tenant
        from tistream_client.cli.api_client import ApiClient

    keep_tenant(ApiClient(url), cluster, tenant)


@tenant_app.command("list")
def tenant_list(cluster: Cluster, url: Url = DEFAULT_URL) -> None:
    """List the tenants of a cluster, one per line, with the state of those that are not active."""
    with importing():
        from tistream_cli.commands.tenant import list_tenants
        from tistream_client.cli.api_client import ApiClient

    list_tenants(ApiClient(url), cluster)


@tenant_app.command("status")
def tenant_status(cluster: Cluster, tenant: Tenant, url: Url = DEFAULT_URL) -> None:
    """Print a tenant's progress, holds, placement on nodes and changefeeds, as JSON."""
    with importing():
        from tistream_cli.commands.tenant import tenant_status as show_status
        from tistream_client.cli.api_client import ApiClient

    show_status(ApiClient(url), cluster, tenant)


@tenant_app.command("usage")
def tenant_usage(
    cluster: Cluster,
    tenant: Tenant,
    start: Annotated[
        int | None, typer.Option("--from", parser=parse_ts, help=f"First hour: {FORMS}. Default: a day.")
    ] = None,
    end: Annotated[int | None, typer.Option("--to", parser=parse_ts, help="End, exclusive, in the same forms.")] = None,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print a tenant's usage by hour: bytes in, stored and served, rows, and requests to object storage."""
    with importing():
        from tistream_cli.commands.usage import show_usage
        from tistream_client.cli.api_client import ApiClient

    show_usage(ApiClient(url), cluster, tenant, (start, end), as_json)


@tenant_app.command("quotas")
def tenant_quotas(
    cluster: Cluster,
    tenant: Tenant,
    quotas: Annotated[
        list[str] | None,
        typer.Argument(
            help="Changes, as requests_per_second=50. 0: unlimited (pulls_at_once: half of what a server allows); "
            "default: the API servers' setting."
        ),
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Change the given quotas of a tenant, and print all quotas and its stored bytes as JSON."""
    with importing():
        from tistream_cli.commands.usage import quotas_of
        from tistream_client.cli.api_client import ApiClient

    quotas_of(ApiClient(url), cluster, tenant, quotas or [])
