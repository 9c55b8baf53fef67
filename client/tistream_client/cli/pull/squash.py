"""`tistream pull --squash`: prints net changes, one for each changed key, as lines of JSON, page after page, up to a
`resolved` line."""

from __future__ import annotations

from typing import IO

from tistream_client.cli.api_client import ApiClient, changes_path, json_line
from tistream_client.cli.points.reads import earliest, pages
from tistream_client.cli.pull.format import PullRequest


def run_squash(client: ApiClient, request: PullRequest, out: IO[bytes]) -> None:
    """Write every line to `out`. The last line is a `resolved` event; a pull without --squash can continue from its
    cursor. Raises CliError."""
    path = changes_path(request.cluster, request.tenant, request.database, request.table)
    if request.cursor is not None:
        first = {"cursor": request.cursor}
    else:
        first = {"start_ts": request.start_ts or earliest(client, path)}
        if request.end_ts is not None:
            first["end_ts"] = request.end_ts
    for line in pages(client, path, first, {"squash": "true"} | request.chosen, request.limit):
        out.write(json_line(line))
    out.flush()
