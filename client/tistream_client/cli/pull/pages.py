"""`tistream pull` by whole pages, one after the other, until the pull has caught up."""

from __future__ import annotations

from typing import Any, Protocol

from tistream_client.cli.api_client import ApiClient, changes_path
from tistream_client.cli.errors import failed
from tistream_client.cli.pull.format import PullFormat, PullRequest
from tistream_client.cli.pull.progress import Bar
from tistream_client.cli.pull.pull import PullProgress, is_over, is_past_end, page_parameters
from tistream_client.core.errors import ApiError, Gone


class Pages(Protocol):
    """A destination of pages, such as a stream or a directory."""

    form: PullFormat

    def write(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Write a page. Returns (number of events, the metadata at the page's end). Raises CliError if the page is
        truncated."""

    def resumed(self, request: PullRequest) -> PullRequest:
        """The request, continued behind the pages that the destination already has."""

    def close(self) -> None:
        """Finish the output after the last page."""


def pull_pages(client: ApiClient, request: PullRequest, pages: Pages, bar: Bar) -> None:
    """Pull all pages into `pages`. Raises CliError; the pages written before the error are complete."""
    try:
        _pull_pages(client, pages.resumed(request), pages, bar)
    finally:
        pages.close()
        bar.close()


def _pull_pages(client: ApiClient, request: PullRequest, pages: Pages, bar: Bar) -> None:
    path = changes_path(request.cluster, request.tenant, request.database, request.table)
    progress = PullProgress(cursor=request.cursor)
    start_ts = request.start_ts
    while True:
        params = {**page_parameters(request, progress, start_ts or "0"), "format": str(pages.form)}
        try:
            body = b"".join(client.chunks(path, params))
        except Gone as error:
            if start_ts is not None or progress.cursor is not None or error.earliest_ts is None:
                raise failed(error) from error
            start_ts = str(error.earliest_ts)  # without a given start, begin at the earliest ts
            continue
        except ApiError as error:
            if is_past_end(request, error):
                return
            raise failed(error) from error
        events, end = pages.write(body)
        progress.rows += events
        progress.last_type, progress.cursor = end["type"], end["cursor"]
        if end["type"] == "resolved":
            progress.resolved_ts = str(end["resolved_ts"])
        bar.seen.rows, bar.seen.size = progress.rows, bar.seen.size + len(body)
        bar.seen.ts = int(progress.resolved_ts or 0)
        bar.tick()
        if is_over(request, progress, got_events=events > 0):
            return
