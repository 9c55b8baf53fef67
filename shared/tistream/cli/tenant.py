"""`tistream tenant …`."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime

from tistream.cli.client import ApiClient, tenant_path
from tistream.cli.errors import CliError

FOREVER = "forever"
NO_KEY = "none"
_DURATION = re.compile(r"([0-9]{1,9})([dhm])")
_UNIT_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000}


def create_tenant(
    client: ApiClient,
    cluster: str,
    tenant: str,
    retention: str | None = None,
    kms_key: str | None = None,
    index_keys: bool | None = None,
) -> None:
    """Register a tenant; the same one again is no error. Without a retention it gets the platform's own; without a key
    its objects are encrypted as the bucket has it. Raises CliError."""
    more: dict[str, object] = {} if retention is None else {"retention_ms": _text(duration_ms(retention))}
    if index_keys is not None:
        more["index_keys"] = index_keys
    if kms_key is not None:
        more["kms_key_id"] = key_id(kms_key)
    client.call("POST", tenant_path(cluster), {"tenant_id": tenant, **more})
    sys.stdout.write(f"tenant {cluster}/{tenant} registered\n")


def set_retention(client: ApiClient, cluster: str, tenant: str, retention: str) -> None:
    """Say how long a tenant's rows are kept. Raises CliError."""
    body = {"retention_ms": _text(duration_ms(retention))}
    client.call("PUT", tenant_path(cluster, tenant, "retention"), body)
    kept = "for ever" if body["retention_ms"] is None else f"for {retention.strip()}"
    sys.stdout.write(f"rows of tenant {cluster}/{tenant} are kept {kept}\n")


def set_key(client: ApiClient, cluster: str, tenant: str, kms_key: str) -> None:
    """Say what a tenant's new objects are encrypted with. Raises CliError."""
    body = {"kms_key_id": key_id(kms_key)}
    client.call("PUT", tenant_path(cluster, tenant, "encryption"), body)
    told = "as the bucket has it" if body["kms_key_id"] is None else f"with key {body['kms_key_id']}"
    sys.stdout.write(f"new objects of tenant {cluster}/{tenant} are encrypted {told}\n")


def pause_tenant(client: ApiClient, cluster: str, tenant: str, *, paused: bool) -> None:
    """Take nothing more of a tenant in, or go on. Raises CliError."""
    client.call("PUT", tenant_path(cluster, tenant, "pause"), {"paused": paused})
    told = "is paused: what is there is served, and nothing more is taken in" if paused else "goes on"
    sys.stdout.write(f"tenant {cluster}/{tenant} {told}\n")


def delete_tenant(client: ApiClient, cluster: str, tenant: str, confirm: str, grace: str) -> None:
    """Delete a tenant with all that it has, once a time has passed. Raises CliError."""
    grace_ms = 0 if grace.strip() == "0" else duration_ms(grace)
    if grace_ms is None:
        raise CliError(
            f"a deletion has a time: say days as 7d, hours as 36h, or 0; `tistream tenant keep` keeps {tenant}"
        )
    body = {"confirm": confirm, "grace_ms": str(grace_ms)}
    found = client.call("PUT", tenant_path(cluster, tenant, "deletion"), body)
    when = datetime.fromtimestamp(int(found["delete_at_ms"]) / 1000, UTC).isoformat(timespec="seconds")
    sys.stdout.write(
        f"tenant {cluster}/{tenant} is paused, and will be deleted at {when}; until then `tistream tenant keep` takes "
        "that back\n"
    )


def keep_tenant(client: ApiClient, cluster: str, tenant: str) -> None:
    """Take a deletion back. Raises CliError."""
    found = client.call("DELETE", tenant_path(cluster, tenant, "deletion"))
    told = " and goes on" if found["state"] == "active" else "; it is paused"
    sys.stdout.write(f"tenant {cluster}/{tenant} is kept{told}\n")


def key_id(text: str) -> str | None:
    """The key as it was named; None for `none`."""
    wanted = text.strip()
    return None if wanted.lower() == NO_KEY else wanted


def duration_ms(text: str) -> int | None:
    """`7d`, `36h` or `90m` in milliseconds; None for `forever`. Raises CliError."""
    if (wanted := text.strip().lower()) == FOREVER:
        return None
    found = _DURATION.fullmatch(wanted)
    if found is None:
        raise CliError(f"{text!r} is no duration: say days as 7d, hours as 36h, minutes as 90m, or {FOREVER}")
    return int(found[1]) * _UNIT_MS[found[2]]


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def list_tenants(client: ApiClient, cluster: str) -> None:
    """Print tenant ids, one a line, and the state of those that are not active. Raises CliError."""
    for tenant in client.call("GET", tenant_path(cluster))["tenants"]:
        state = tenant.get("state", "active")
        sys.stdout.write(tenant["tenant_id"] + ("" if state == "active" else f"  {state}") + "\n")


def tenant_status(client: ApiClient, cluster: str, tenant: str) -> None:
    """Print the status document, and which node holds what. Raises CliError."""
    found = client.call("GET", tenant_path(cluster, tenant, "status"))
    found |= client.call("GET", tenant_path(cluster, tenant, "placement"))
    sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
