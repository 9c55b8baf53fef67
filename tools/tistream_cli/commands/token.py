"""The implementation of `tistream token …`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from tistream.clock import SystemClock
from tistream.wire.tokens import ANY
from tistream_cli.commands.tenant import duration_ms
from tistream_cli.new_token import hand_over
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.errors import CliError
from tistream_client.cli.output import json_wanted, say, show_document, show_list

_LEVELS = ("cluster", "tenant", "database", "table")
_PATH = "/v1/tokens"


def create_token(client: ApiClient, grants: Sequence[str], label: str, expires: str | None, out: Path | None) -> None:
    """Create a token, and write its text to stdout or `out`. Raises CliError."""
    seconds = None if expires is None or (ms := duration_ms(expires)) is None else ms // 1000
    body = {"label": label, "grants": [grant_of(text) for text in grants], "expires_in_s": seconds}
    made = client.call("POST", _PATH, body)
    if json_wanted() and out is None:
        show_document(made)
        return
    hand_over(made["token"], out)
    until = "it is revoked" if made["expires_ms"] is None else _time(made["expires_ms"])
    sys.stderr.write(f"token {made['token_id']} made, valid until {until}; its text is shown only once\n")


def list_tokens(client: ApiClient) -> None:
    """Print every token that the caller may see, one per line. Raises CliError."""
    now_ms = SystemClock().now_ms()
    tokens = client.call("GET", _PATH)["tokens"]
    rows = [
        (
            token["token_id"],
            _state(token, now_ms),
            _time(token["created_ms"]),
            _time(token["expires_ms"]),
            " ".join(map(spelled, token["grants"])),
            token["label"] or "-",
        )
        for token in tokens
    ]
    show_list("tokens", tokens, ("token", "state", "created", "expires", "grants", "label"), rows)


def revoke_token(client: ApiClient, token_id: str) -> None:
    """Revoke a token. Raises CliError."""
    client.call("DELETE", f"{_PATH}/{quote(token_id, safe='')}")
    say(f"token {token_id} is revoked", {"token_id": token_id})


def grant_of(text: str) -> dict[str, Any]:
    """Parse a grant such as `read,push:7/acme/shop/orders`: actions, then cluster, tenant, database and table. The last
    levels may be missing; slashes in names are percent-encoded. Raises CliError."""
    actions, colon, path = text.partition(":")
    names = [unquote(name) for name in path.split("/")]
    if not colon or not actions or len(names) > len(_LEVELS) or "" in names:
        raise CliError(
            f"--grant {text!r} is not a grant: use ACTIONS:CLUSTER/TENANT/DATABASE/TABLE, such as read:7/acme, or "
            "operate:*"
        )
    return {"actions": actions.split(","), **dict(zip(_LEVELS, names, strict=False))}


def spelled(grant: Mapping[str, Any]) -> str:
    """Format a grant in the form that `grant_of` parses."""
    names = [quote(grant[level], safe=ANY) for level in _LEVELS if grant[level] != ANY]
    return f"{','.join(grant['actions'])}:{'/'.join(names) or ANY}"


def _state(token: Mapping[str, Any], now_ms: int) -> str:
    if token["revoked_ms"] is not None:
        return "revoked"
    return "expired" if token["expires_ms"] is not None and token["expires_ms"] <= now_ms else "valid"


def _time(ms: int | None) -> str:
    return "-" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
