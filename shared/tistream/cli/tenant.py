"""`tistream tenant …`."""

from __future__ import annotations

import json
import sys

from tistream.cli.client import ApiClient, tenant_path


def create_tenant(client: ApiClient, cluster: str, tenant: str) -> None:
    """Register a tenant; the same one again is no error. Raises CliError."""
    client.call("POST", tenant_path(cluster), {"tenant_id": tenant})
    sys.stdout.write(f"tenant {cluster}/{tenant} registered\n")


def list_tenants(client: ApiClient, cluster: str) -> None:
    """Print tenant ids, one a line. Raises CliError."""
    for tenant in client.call("GET", tenant_path(cluster))["tenants"]:
        sys.stdout.write(f"{tenant['tenant_id']}\n")


def tenant_status(client: ApiClient, cluster: str, tenant: str) -> None:
    """Print the status document, and which node holds what. Raises CliError."""
    found = client.call("GET", tenant_path(cluster, tenant, "status"))
    found |= client.call("GET", tenant_path(cluster, tenant, "placement"))
    sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
