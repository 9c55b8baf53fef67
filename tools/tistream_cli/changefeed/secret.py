"""The implementation of `tistream secret …`."""

from __future__ import annotations

import getpass
import sys
from datetime import UTC, datetime
from pathlib import Path

from tistream_client.cli.api_client import ApiClient, tenant_path
from tistream_client.cli.errors import CliError
from tistream_client.cli.output import json_wanted, say, show_document


def put_secret(client: ApiClient, cluster: str, tenant: str, name: str, file: Path | None) -> None:
    """Store a secret. Its value is the content of the file, or a line of stdin. Raises CliError."""
    value = _value(file)
    if not value:
        raise CliError("the secret is empty: write it into the file, or as a line to stdin")
    client.call("PUT", tenant_path(cluster, tenant, "secrets", name), {"value": value})
    say(f"secret {name} stored; refer to it as ${{secret:{name}}}", {"name": name})


def list_secrets(client: ApiClient, cluster: str, tenant: str) -> None:
    """Print one line for each secret. Raises CliError."""
    found = client.call("GET", tenant_path(cluster, tenant, "secrets"))
    if json_wanted():
        show_document(found)
        return
    for one in found["secrets"]:
        put = datetime.fromtimestamp(int(one["put_ms"]) / 1000, UTC).isoformat(timespec="seconds")
        users = ", ".join(one["used_by"]) or "no changefeed"
        sys.stdout.write(f"{one['name']}  put {put}  used by {users}\n")


def remove_secret(client: ApiClient, cluster: str, tenant: str, name: str) -> None:
    """Remove a secret. Raises CliError."""
    client.call("DELETE", tenant_path(cluster, tenant, "secrets", name))
    say(f"secret {name} removed", {"name": name})


def _value(file: Path | None) -> str:
    if file is None:
        return getpass.getpass("value: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    try:
        return file.read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"--file {file} cannot be read: {error}") from error
