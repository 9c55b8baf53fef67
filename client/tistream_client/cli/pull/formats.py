"""`tistream pull --format arrow|parquet`: pulls whole pages, one after the other, until the pull has caught up."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

import pyarrow as pa

from tistream_client.cli.api_client import ApiClient, changes_path
from tistream_client.cli.errors import CliError, NoAnswer, failed
from tistream_client.cli.pull.format import PullFormat, PullRequest
from tistream_client.cli.pull.progress import Bar
from tistream_client.cli.pull.pull import PullProgress, is_over, is_past_end, page_parameters
from tistream_client.core.errors import ApiError, Gone

_EVENTS = (b"row", b"ddl")
_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"  # the last bytes of an IPC stream


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


@dataclass(slots=True)
class ToStream:
    """Writes Arrow IPC streams unchanged, one after the other. A reader opens them in turn with
    `pyarrow.ipc.open_stream`."""

    out: IO[bytes]
    form: PullFormat = PullFormat.ARROW

    def write(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Check a page, and write its bytes unchanged. Returns and raises the same as Pages.write."""
        source, events, end = io.BytesIO(body), 0, {}
        try:
            while source.tell() < len(body):
                with pa.ipc.open_stream(source) as stream:
                    kind = stream.schema.metadata[b"tistream.type"]
                    for batch in stream:
                        if kind in _EVENTS:
                            events += batch.num_rows
                        else:
                            end = {"type": kind.decode(), **batch.to_pylist()[0]}
        except (pa.ArrowException, OSError) as error:
            raise _cut() from error
        if not end or not body.endswith(_STREAM_END):
            raise _cut()
        self.out.write(body)
        self.out.flush()
        return events, end

    def resumed(self, request: PullRequest) -> PullRequest:
        """The request, unchanged, because a stream has no earlier pages."""
        return request

    def close(self) -> None:
        """Do nothing: each page is complete by itself."""


@dataclass(slots=True)
class ToOneStream:
    """Joins the pages of events=rows or events=ddl into one Arrow IPC stream, which ends where the schema changes."""

    out: IO[bytes]
    form: PullFormat = PullFormat.ARROW
    _stream: pa.ipc.RecordBatchStreamWriter | None = field(default=None, init=False)
    _schema: pa.Schema | None = field(default=None, init=False)
    _cursor: str | None = field(default=None, init=False)
    _end: dict[bytes, bytes] = field(default_factory=dict, init=False)

    def write(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Write a page's batches. Returns the same as Pages.write. Raises CliError if the page is truncated, or has
        another schema than the earlier pages. After an error, the stream is complete up to the page before."""
        try:
            with pa.ipc.open_stream(body) as page:
                found = list(page.iter_batches_with_custom_metadata())
        except (pa.ArrowException, OSError) as error:
            raise _cut() from error
        if not found or found[-1].custom_metadata is None or not body.endswith(_STREAM_END):
            raise _cut()
        last: dict[bytes, bytes] = dict(found[-1].custom_metadata)
        end = {name.decode().removeprefix("tistream."): text.decode() for name, text in last.items()}
        events = sum(one.batch.num_rows for one in found)
        if events and self._stream is not None and not page.schema.equals(self._schema, check_metadata=True):
            raise CliError(
                "the table's schema changes here, and one stream has one schema: this one is complete up to here; "
                f"pull the following events into another one with --cursor {self._cursor}"
            )
        if events or self._schema is None:
            self._schema = page.schema
        if events and self._stream is None:
            self._stream = pa.ipc.new_stream(self.out, page.schema)
        for one in found:
            if self._stream is not None and one.batch.num_rows:
                self._stream.write_batch(one.batch)
        self._cursor, self._end = end["cursor"], last
        return events, end

    def resumed(self, request: PullRequest) -> PullRequest:
        """The request, unchanged, because a stream has no earlier pages."""
        return request

    def close(self) -> None:
        """End the stream with an empty batch, whose metadata has the last page's end metadata and the cursor."""
        if self._schema is None:
            return
        stream = self._stream or pa.ipc.new_stream(self.out, self._schema)
        columns = [pa.array([], column.type) for column in self._schema]
        stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema), self._end)
        stream.close()
        self.out.flush()
        self._schema = self._stream = None


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


def _cut() -> NoAnswer:
    return NoAnswer("the answer is truncated; pull again from the last cursor")
