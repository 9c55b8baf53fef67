"""Runs `tistream pull`. This module has no heavy imports, so the command line starts fast."""

# ruff: noqa: PLC0415 - each form imports its modules when it runs

from __future__ import annotations

import sys
from pathlib import Path

from tistream_cli.importing import importing
from tistream_cli.pull.format import (
    PullEvents,
    PullFormat,
    PullRequest,
    check,
    check_raw,
    check_snapshot,
    check_squash,
)


def run(request: PullRequest, form: PullFormat, out: Path | None, url: str, *, squash: bool) -> None:
    """Check the options, and pull. Raises typer.BadParameter and CliError."""
    check(request, form, out)
    check_raw(request, form, squash=squash)
    if request.snapshot is not None:
        check_snapshot(request, form, squash=squash)
    with importing():
        from tistream_cli.client import ApiClient
    if squash:
        check_squash(request, form)
        with importing():
            from tistream_cli.points.squash import run_squash

        run_squash(ApiClient(url), request, sys.stdout.buffer)
        return
    if form is PullFormat.NDJSON:
        with importing():
            from tistream_cli.pull.pull import run_pull

        run_pull(ApiClient(url), request, sys.stdout.buffer)
        return
    with importing():
        from tistream_cli.pull.directory import ToFiles
        from tistream_cli.pull.formats import ToOneStream, ToStream, pull_pages

    to_stdout = ToStream if request.events is PullEvents.ALL else ToOneStream
    pull_pages(ApiClient(url), request, to_stdout(sys.stdout.buffer) if out is None else ToFiles(out, request))
