"""The implementation of `tistream store …`."""

from __future__ import annotations

from tistream_client.cli.api_client import ApiClient, tenant_path
from tistream_client.cli.output import say


def retire_store(client: ApiClient, cluster: str, tenant: str, store: int, *, discard: bool) -> None:
    """Retire a store that will not return. With `discard`, its files that were never processed are deleted too. Raises
    CliError, with the reason if keys still wait for the store's files."""
    client.call("POST", tenant_path(cluster, tenant, "stores", str(store), "retire"), {"discard": discard})
    text = f"store {store} of tenant {cluster}/{tenant} is retired; its files will be deleted"
    say(text, {"store_id": store, "discard": discard})
