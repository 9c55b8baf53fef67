"""The implementation of `tistream tenant usage` and `tistream tenant quotas`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from tistream.wire.limits import Limits
from tistream_client.cli import documents
from tistream_client.cli.api_client import ApiClient, tenant_path
from tistream_client.cli.errors import CliError

DEFAULT = "default"
_COLUMNS = ("hour", "bytes_in", "bytes_stored", "bytes_served", "rows_served", "requests", "feed_rows", "feed_bytes")


def show_usage(
    client: ApiClient, cluster: str, tenant: str, between: tuple[int | None, int | None], as_json: bool
) -> None:
    """Print a tenant's usage: one line per hour, and a total. `between`: the first hour and the end, as TSO. Raises
    CliError."""
    params = {name: str(ts >> 18) for name, ts in zip(("from", "to"), between, strict=True) if ts is not None}
    path = tenant_path(cluster, tenant, "usage")
    found = client.call("GET", f"{path}?{urlencode(params)}" if params else path)
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return
    rows = [list(_COLUMNS)]
    rows += [_row(hour["hour"], hour) for hour in found["hours"]]
    rows.append(_row("total", found["total"]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        numbers = (text.rjust(width) for text, width in zip(rest, widths[1:], strict=True))
        sys.stdout.write("  ".join([first.ljust(widths[0]), *numbers]) + "\n")
    if found["total"]["bytes_stored"] is not None:
        sys.stdout.write("bytes_stored: at the end of each hour; the total is byte-hours\n")


def _row(name: str, amounts: dict[str, Any]) -> list[str]:
    requests = sum(int(count) for count in amounts["requests"].values())
    stored = amounts["bytes_stored"]
    numbers = [amounts["bytes_in"], "-" if stored is None else stored, amounts["bytes_served"], amounts["rows_served"]]
    return [name, *numbers, str(requests), amounts["feed_rows"], amounts["feed_bytes"]]


def quotas_of(client: ApiClient, cluster: str, tenant: str, changes: Sequence[str]) -> None:
    """Change quotas of a tenant (`changes`: NAME=VALUE), and print all of them. Raises CliError."""
    path = tenant_path(cluster, tenant, "quotas")
    found = client.call("GET", path)
    if changes:
        limits = {name: found[name] for name in Limits.model_fields}
        found = client.call("PUT", path, limits | dict(map(_quota, changes)))
    documents.show(found)


def _quota(change: str) -> tuple[str, int | None]:
    name, _, value = change.partition("=")
    if name not in Limits.model_fields:
        raise CliError(f"{name!r} is not a quota; quotas are {', '.join(Limits.model_fields)}")
    if value == DEFAULT:
        return name, None
    if not value.isascii() or not value.isdigit():
        raise CliError(f"{name}={value!r}: a quota is a whole number, or {DEFAULT!r} for the servers' setting")
    return name, int(value)
