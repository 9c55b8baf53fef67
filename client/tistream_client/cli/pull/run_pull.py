"""Runs `tistream pull`. This module has no heavy imports, so the command line starts fast."""

# ruff: noqa: PLC0415 - each form imports its modules when it runs

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tistream_client.cli.errors import AGAIN, USAGE, CliError, Refused
from tistream_client.cli.importing import importing
from tistream_client.cli.pull.format import (
    PullEvents,
    PullFormat,
    PullRequest,
    check,
    check_raw,
    check_snapshot,
    check_squash,
)
from tistream_client.cli.times import now_ms, shown_ts, since_text, ts_text
from tistream_client.core.errors import Gone
from tistream_client.core.times import NOW

if TYPE_CHECKING:
    from tistream_client.cli.api_client import ApiClient
    from tistream_client.cli.pull.directory import Directory


def run(request: PullRequest, form: PullFormat, out: Path | None, url: str, *, squash: bool) -> None:
    """Check the options, and pull from the API at `url` into the directory `out`; None: to stdout. `squash`: only the
    net change of each row. Raises typer.BadParameter and CliError."""
    check(request, form, out)
    check_raw(request, form, squash=squash)
    if request.snapshot is not None:
        check_snapshot(request, form, squash=squash)
    if squash:
        check_squash(request, form, out)
    with importing():
        from tistream_client.cli.api_client import ApiClient
        from tistream_client.cli.pull.progress import Bar
    client = ApiClient(url)
    if out is not None:
        with importing():
            from tistream_client.cli.pull.directory import ToFiles, ToLines

            _need_arrow(form)
        pages = (ToLines if form is PullFormat.NDJSON else ToFiles)(out, request)
        with closing(pages):
            placed_request = placed(client, pages.continued(request))
            _into(pages, client, placed_request)
        return
    placed_request = placed(client, request)
    bar = Bar(placed_request.start_ts, placed_request.end_ts)
    if squash:
        with importing():
            from tistream_client.cli.pull.squash import run_squash

        run_squash(client, placed_request, sys.stdout.buffer)
        return
    if form is PullFormat.NDJSON:
        with importing():
            from tistream_client.cli.pull.pull import run_pull

        run_pull(client, placed_request, sys.stdout.buffer, bar)
        return
    with importing():
        _need_arrow(form)
        from tistream_client.cli.pull.pages import pull_pages
        from tistream_client.cli.pull.streams import ToOneStream, ToStream
    to_stdout = ToStream if request.events is PullEvents.ALL else ToOneStream
    pull_pages(client, placed_request, to_stdout(sys.stdout.buffer), bar)


def _into(pages: Directory, client: ApiClient, request: PullRequest) -> None:
    from tistream_client.cli.pull.pages import pull_pages
    from tistream_client.cli.pull.progress import Bar

    stored = pages.cursor is not None
    try:
        pull_pages(client, request, pages, Bar(request.start_ts, request.end_ts))
    except Refused as error:
        if stored and isinstance(error.refusal, Gone):  # the directory allows no other --since
            raise CliError(f"{error}, into an empty directory") from error
        raise


def placed(client: ApiClient, request: PullRequest) -> PullRequest:
    """The request with its times as TSO; `now` is the newest ts that can be read. A pull with filters ends there by
    default, because with filters an answer without events does not mean that the pull has caught up. Raises
    CliError."""
    at_ms = now_ms()
    low = since_text(request.start_ts, at_ms)
    high = None if request.end_ts is None else ts_text(request.end_ts, at_ms)
    snapshot = None if request.snapshot is None else ts_text(request.snapshot, at_ms)
    if request.filters and high is None and not request.follow:
        high = NOW
    if NOW in (low, high):
        newest = newest_ts(client, request.cluster, request.tenant, raw=request.raw)
        if high == NOW and low not in (None, NOW) and int(newest) < int(low or 0):
            text = f"nothing after {request.start_ts} can be read yet: the newest ts is {shown_ts(newest)}"
            raise CliError(text, AGAIN)
        low, high = (newest if ts == NOW else ts for ts in (low, high))
    if low is not None and high is not None and int(high) < int(low):
        text = f"--until {request.end_ts} lies before --since {request.start_ts}: use --since 2h --until 1h"
        raise CliError(text, USAGE)
    return replace(request, start_ts=low, end_ts=high, snapshot=snapshot)


def newest_ts(client: ApiClient, cluster: str, tenant: str, *, raw: bool = False) -> str:
    """The newest ts that can be read. It is taken from the call ListDBs, which a token for any part of the tenant may
    use; with `raw`, for a tenant of RawKV, which has no databases, from its status. Raises CliError."""
    from tistream_client.cli.api_client import tenant_path

    if raw:
        return str(client.call("GET", tenant_path(cluster, tenant, "status"))["resolved_ts"])
    return str(client.call("GET", tenant_path(cluster, tenant, "databases"))["ts"])


def _need_arrow(form: PullFormat) -> None:
    if form is PullFormat.NDJSON:
        return
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise CliError(f"--format {form} needs pyarrow: pipx install 'tistream-client[arrow]'") from error
