"""Encodes events as Arrow IPC streams, one after the other in one body (docs/api.md, "Formats"). Pure."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tistream.read.events import Events
from tistream_api.encode.arrow_batches import batches, end_batch
from tistream_api.encode.page_end import PageEnd
from tistream_api.encode.piece import Piece

END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


class ArrowEncoder:
    """Encodes events as Arrow IPC streams, and starts a new stream whenever the schema changes."""

    def __init__(self) -> None:
        self._seq = 0
        self._schema: pa.Schema | None = None

    def events(self, events: Events) -> Iterator[Piece]:
        """Encode the record batches of the events. If the schema changes, the end of the old stream and the new schema
        come first."""
        for batch in batches(events, self._seq):
            yield from self._put(batch)
        self._seq += len(events)

    def end(self, end: PageEnd) -> Iterator[Piece]:
        """Encode the position at the end of an answer, as a stream of its own with one row."""
        yield b"".join([*self._put(end_batch(end)), *self.close()])

    def close(self) -> Iterator[Piece]:
        """Encode the end of the open stream; empty if no stream is open."""
        if self._schema is not None:
            self._schema = None
            yield END_OF_STREAM

    def _put(self, batch: pa.RecordBatch) -> Iterator[Piece]:
        if self._schema is None or not self._schema.equals(batch.schema, check_metadata=True):
            yield from self.close()
            self._schema = batch.schema
            yield batch.schema.serialize().to_pybytes()
        yield memoryview(batch.serialize())
