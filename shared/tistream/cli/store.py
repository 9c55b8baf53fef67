"""`tistream store …`."""

from __future__ import annotations

import sys

from tistream.cli.client import ApiClient, tenant_path


def retire_store(client: ApiClient, cluster: str, tenant: str, store: int, *, discard: bool) -> None:
    """Let a store go that is gone for good. Raises CliError: with the reason, where something waits for it."""
    client.call("POST", tenant_path(cluster, tenant, "stores", str(store), "retire"), {"discard": discard})
    sys.stdout.write(f"store {store} of tenant {cluster}/{tenant} is retired: nobody reads it, and its files go\n")
