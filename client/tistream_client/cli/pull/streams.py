"""`tistream pull --format arrow`: pages as Arrow IPC streams on stdout."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import IO, Any

import pyarrow as pa

from tistream_client.cli.errors import CliError, NoAnswer
from tistream_client.cli.pull.format import PullFormat, PullRequest

_EVENTS = (b"row", b"ddl")
_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"  # the last bytes of an IPC stream


@dataclass(slots=True)
class ToStream:
    """Writes Arrow IPC streams unchanged, one after the other. A reader opens them in turn with
    `pyarrow.ipc.open_stream`. `continues`: as in Pages."""

    out: IO[bytes]
    form: PullFormat = PullFormat.ARROW
    continues: bool = False

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
    """Joins the pages of events=rows or events=ddl into one Arrow IPC stream, which ends where the schema changes.
    `continues`: as in Pages."""

    out: IO[bytes]
    form: PullFormat = PullFormat.ARROW
    continues: bool = False
    _stream: pa.ipc.RecordBatchStreamWriter | None = field(default=None, init=False)
    _schema: pa.Schema | None = field(default=None, init=False)
    _cursor: str | None = field(default=None, init=False)
    _end: dict[bytes, bytes] = field(default_factory=dict, init=False)

    def write(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Write a page's batches. Returns the same as Pages.write. Raises NoAnswer if the page is truncated, and
        CliError if it has another schema than the earlier pages. After an error, the stream is complete up to
        the page before."""
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


def _cut() -> NoAnswer:
    return NoAnswer("the answer is truncated")
