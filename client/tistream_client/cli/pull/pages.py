"""`tistream pull` by whole pages, one after the other, until the pull has caught up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from tistream_client.cli.again import Patience, given_up, waited_for
from tistream_client.cli.api_client import ApiClient, changes_path
from tistream_client.cli.errors import LATER
from tistream_client.cli.pull.format import PullFormat, PullRequest
from tistream_client.cli.pull.progress import Bar
from tistream_client.cli.pull.pull import PullProgress, earliest_ts, is_over, is_past_end, page_parameters, waits_for
from tistream_client.core.errors import ApiError


class Pages(Protocol):
    """A destination of pages, such as a stream or a directory."""

    form: PullFormat
    continues: bool  # whether the same command continues behind the pages that are written

    def write(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Write a page. Returns (number of events, the metadata at the page's end). Raises NoAnswer if the page is
        truncated; then nothing is written."""

    def resumed(self, request: PullRequest) -> PullRequest:
        """The request, continued behind the pages that the destination already has."""

    def close(self) -> None:
        """Finish the output after the last page."""


def pull_pages(
    client: ApiClient, request: PullRequest, pages: Pages, bar: Bar, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Pull all pages into `pages`. After the first page, an answer that is cut off or refused for now is asked for
    again, for up to a minute of waits. Raises CliError; the pages written before the error are complete."""
    try:
        _pull_pages(client, pages.resumed(request), pages, bar, sleep)
    finally:
        pages.close()
        bar.close()


def _pull_pages(
    client: ApiClient, request: PullRequest, pages: Pages, bar: Bar, sleep: Callable[[float], None]
) -> None:
    path = changes_path(request.cluster, request.tenant, request.database, request.table)
    progress = PullProgress(cursor=request.cursor)
    start_ts, patience = request.start_ts, Patience(follow=False)
    while True:
        params = {**page_parameters(request, progress, start_ts or "0"), "format": str(pages.form)}
        try:
            body = b"".join(client.chunks(path, params))
            events, end = pages.write(body)
        except LATER as error:
            seconds = patience.seconds(error, progress.rows, progress.cursor) if progress.last_type else None
            if seconds is None:
                cursor = progress.cursor if progress.last_type and not pages.continues else None
                raise given_up(error, cursor, 0, same_command=pages.continues) from error
            bar.say(waited_for(error))
            sleep(seconds)
            continue
        except ApiError as error:
            if is_past_end(request, error):
                return
            start_ts = earliest_ts(error, begun=start_ts is not None or progress.cursor is not None)
            continue
        progress.rows += events
        progress.last_type, progress.cursor = end["type"], end["cursor"]
        if end["type"] == "resolved":
            progress.resolved_ts = str(end["resolved_ts"])
        bar.seen.rows, bar.seen.size = progress.rows, bar.seen.size + len(body)
        bar.seen.ts = int(progress.resolved_ts or 0)
        bar.tick()
        if is_over(request, progress, got_events=events > 0):
            return
        if waits := waits_for(request, progress, got_events=events > 0):
            bar.say(waits)
