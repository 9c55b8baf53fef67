"""The implementation of `tistream tenant …`."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from tistream.model.tenant_kind import TenantKind
from tistream_client.cli import documents
from tistream_client.cli.api_client import ApiClient, tenant_path
from tistream_client.cli.errors import CliError
from tistream_client.cli.output import json_wanted, say, show_document

FOREVER = "forever"
NO_KEY = "none"
_WAIT_SECONDS = 0.5
_DURATION = re.compile(r"([0-9]{1,9})([dhm])")
_OF_FEEDS = ("changefeed_id", "state", "lag_seconds", "held_by", "error")
_UNIT_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000}


def create_tenant(
    client: ApiClient,
    cluster: str,
    tenant: str,
    retention: str | None = None,
    kms_key: str | None = None,
    index_keys: bool | None = None,
    kind: TenantKind | None = None,
) -> None:
    """Register a tenant. Idempotent. For an option that is None the default applies: of `retention` the platform's
    setting, of `kms_key` the bucket's default encryption. Raises CliError."""
    more: dict[str, object] = {} if retention is None else {"retention_ms": _text(duration_ms(retention))}
    if index_keys is not None:
        more["index_keys"] = index_keys
    if kind is not None:
        more["kind"] = kind.value
    if kms_key is not None:
        more["kms_key_id"] = key_id(kms_key)
    made = client.call("POST", tenant_path(cluster), {"tenant_id": tenant, **more})
    say(f"tenant {cluster}/{tenant} registered", made)


def wait_for_snapshot(
    client: ApiClient, cluster: str, tenant: str, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Wait until the snapshot of a tenant has been read, so that it can be pulled. Writes the reason for the wait to
    stderr, each reason once. Raises CliError."""
    said = ""
    while True:
        status = client.call("GET", tenant_path(cluster, tenant, "status"))
        if int(status["resolved_ts"]) > 0:
            if not json_wanted():
                sys.stdout.write(f"tenant {cluster}/{tenant} can be pulled\n")
            return
        reason = (status["held_by"] or {}).get("reason", "")
        if reason and reason != said:
            said = reason
            sys.stderr.write(f"waiting: {reason}\n")
        sleep(_WAIT_SECONDS)


def set_retention(client: ApiClient, cluster: str, tenant: str, retention: str) -> None:
    """Set how long a tenant's rows are kept. Raises CliError."""
    body = {"retention_ms": _text(duration_ms(retention))}
    found = client.call("PUT", tenant_path(cluster, tenant, "retention"), body)
    kept = "for ever" if body["retention_ms"] is None else f"for {retention.strip()}"
    say(f"rows of tenant {cluster}/{tenant} are kept {kept}", found)


def set_key(client: ApiClient, cluster: str, tenant: str, kms_key: str) -> None:
    """Set the key that encrypts a tenant's new objects. Raises CliError."""
    body = {"kms_key_id": key_id(kms_key)}
    found = client.call("PUT", tenant_path(cluster, tenant, "encryption"), body)
    how = "by the bucket's default" if body["kms_key_id"] is None else f"with key {body['kms_key_id']}"
    say(f"new objects of tenant {cluster}/{tenant} are encrypted {how}", found)


def pause_tenant(client: ApiClient, cluster: str, tenant: str, *, paused: bool) -> None:
    """Pause or resume a tenant. Raises CliError."""
    found = client.call("PUT", tenant_path(cluster, tenant, "pause"), {"paused": paused})
    state = "is paused: existing rows are served, and no new changes are processed" if paused else "is resumed"
    say(f"tenant {cluster}/{tenant} {state}", found)


def delete_tenant(client: ApiClient, cluster: str, tenant: str, confirm: str, grace: str) -> None:
    """Delete a tenant with all of its data after the grace period. `confirm` must repeat the tenant's name. Raises
    CliError."""
    grace_ms = 0 if grace.strip() == "0" else duration_ms(grace)
    if grace_ms is None:
        raise CliError(f"--grace {grace!r} is not a time: use days as 7d, hours as 36h, minutes as 90m, or 0")
    body = {"confirm": confirm, "grace_ms": str(grace_ms)}
    found = client.call("PUT", tenant_path(cluster, tenant, "deletion"), body)
    when = datetime.fromtimestamp(int(found["delete_at_ms"]) / 1000, UTC).isoformat(timespec="seconds")
    say(
        f"tenant {cluster}/{tenant} is paused, and will be deleted at {when}; until then `tistream tenant keep` "
        "cancels the deletion",
        found,
    )


def keep_tenant(client: ApiClient, cluster: str, tenant: str) -> None:
    """Cancel the deletion of a tenant. Raises CliError."""
    found = client.call("DELETE", tenant_path(cluster, tenant, "deletion"))
    state = " and is resumed" if found["state"] == "active" else "; it is paused"
    say(f"tenant {cluster}/{tenant} is kept{state}", found)


def key_id(text: str) -> str | None:
    """Parse the option --kms-key. Returns the key id without surrounding spaces; None for `none`."""
    wanted = text.strip()
    return None if wanted.lower() == NO_KEY else wanted


def duration_ms(text: str) -> int | None:
    """Parse a duration such as `7d`, `36h` or `90m`. Returns milliseconds; None for `forever`. Raises CliError."""
    if (wanted := text.strip().lower()) == FOREVER:
        return None
    found = _DURATION.fullmatch(wanted)
    if found is None:
        raise CliError(f"{text!r} is not a duration: use days as 7d, hours as 36h, minutes as 90m, or {FOREVER}")
    return int(found[1]) * _UNIT_MS[found[2]]


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def list_tenants(client: ApiClient, cluster: str) -> None:
    """Print tenant ids, one per line, with the state of those that are not active. Raises CliError."""
    found = client.call("GET", tenant_path(cluster))
    if json_wanted():
        show_document(found)
        return
    for tenant in found["tenants"]:
        state = tenant.get("state", "active")
        sys.stdout.write(tenant["tenant_id"] + ("" if state == "active" else f"  {state}") + "\n")


def tenant_status(client: ApiClient, cluster: str, tenant: str) -> None:
    """Print the tenant's status document, its placement on nodes, its changefeeds, and the territories of its agents.
    Raises CliError."""
    found = client.call("GET", tenant_path(cluster, tenant, "status"))
    found |= client.call("GET", tenant_path(cluster, tenant, "placement"))
    feeds = client.call("GET", tenant_path(cluster, tenant, "changefeeds"))["changefeeds"]
    found["changefeeds"] = [{name: one[name] for name in _OF_FEEDS} for one in feeds]
    territories = client.call("GET", tenant_path(cluster, tenant, "territories"))["territories"]
    if territories:
        names = ("territory", "node_id", "epoch", "said")
        found["territories"] = [{name: one[name] for name in names} for one in territories]
    documents.show(found)
