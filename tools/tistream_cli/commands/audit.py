"""The implementation of `tistream audit`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from tistream.wire.audit import LIMIT_MAX
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.errors import CliError
from tistream_client.cli.output import print_table

Entry = Mapping[str, Any]


def show_audit(client: ApiClient, after: int | None, limit: int, tenant: Sequence[str | None], as_json: bool) -> None:
    """Print the audit entries with a number above `after`, or the newest `limit` entries, in columns or as one JSON
    object per line. `tenant`: (cluster, tenant), or (None, None) for all. Raises CliError."""
    if (tenant[0] is None) != (tenant[1] is None):
        raise CliError("--cluster and --tenant are needed together: give both, or neither")
    of = dict(zip(("cluster_id", "tenant_id"), tenant, strict=True)) if tenant[0] is not None else {}
    newest = {"limit": str(min(limit, LIMIT_MAX)), **of}
    found = _page(client, newest) if after is None else _above(client, after, of)
    if as_json:
        for entry in found:
            sys.stdout.write(json.dumps(entry) + "\n")
        return
    print_table(("seq", "time", "action", "subject", "by", "from", "change", "cause"), [_row(entry) for entry in found])


def _above(client: ApiClient, after: int, of: Mapping[str, Any]) -> Iterator[Entry]:
    while page := _page(client, {"after": str(after), "limit": str(LIMIT_MAX), **of}):
        yield from page
        after = page[-1]["seq"]


def _page(client: ApiClient, params: Mapping[str, Any]) -> list[Entry]:
    entries: list[Entry] = client.call("GET", f"/v1/audit?{urlencode(params)}")["entries"]
    return entries


def _row(entry: Entry) -> tuple[str, ...]:
    at = datetime.fromtimestamp(entry["at_ms"] / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    names = entry["actor"], entry["address"] or "-", change_of(entry), entry["cause"] or "-"
    return (str(entry["seq"]), at, entry["action"], entry["subject"], *map(_on_one_line, names))


def change_of(entry: Entry) -> str:
    """Format the change of an entry as text, such as `retention_ms: null -> 604800000`; `made` or `gone` if the entry's
    object was created or deleted."""
    was, became = entry["was"], entry["became"]
    if was is None or became is None:
        return "made" if was is None else "gone"
    return ", ".join(f"{name}: {json.dumps(was[name])} -> {json.dumps(became[name])}" for name in became)


def _on_one_line(text: str) -> str:
    """Escape characters that are not printable. A name may contain any character, and must not control the terminal."""
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
