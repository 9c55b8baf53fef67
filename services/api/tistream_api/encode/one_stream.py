"""Encodes a pull as a single Arrow IPC stream with one schema: rows of one table, or DDL events (docs/api.md, "Arrow").
Positions are sent as batches without rows, in their custom metadata. A reader that ignores them reads every event of
the answer, whatever library it uses. Pure except for the look-up of the schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tistream.read.arrow.row_batches import nameless_schema, row_schema
from tistream.read.cursor import Scope
from tistream.read.events import Ddls, Events, RawRows, Rows
from tistream.read.raw_scope import RawScope
from tistream.read.source import TenantSource
from tistream.read.source_contract import Batch
from tistream_api.encode.arrow_batches import DDL_SCHEMA, batches
from tistream_api.encode.arrow_stream import END_OF_STREAM
from tistream_api.encode.page_end import PageEnd
from tistream_api.encode.piece import Piece
from tistream_api.encode.raw_encoding import RAW_SCHEMA
from tistream_api.request.params import ALL, DDL, PullParams


class OneStream:
    """Finds and keeps the schema of an answer that is one Arrow stream. It is the schema of the first event, or the
    schema in force if a position is sent before any event. `in_force` returns the schema in force at a resolved_ts; its
    argument is None if the position is between two events of one commit_ts."""

    def __init__(self, in_force: Callable[[int | None], pa.Schema]) -> None:
        self.schema: pa.Schema | None = None
        self._in_force = in_force

    def begun(self, end: PageEnd) -> pa.Schema:
        """Return the schema of the stream. If no event has determined it yet, set it to the schema in force at `end`
        first."""
        if self.schema is None:
            self.schema = self._in_force(end.resolved_ts)
        return self.schema

    def until_change(self, found: Iterator[Batch]) -> Iterator[Batch]:
        """Yield batches up to the first event whose schema is not that of the stream. The last batch then ends just
        below the commit_ts of that event and has `last` set."""
        for batch in found:
            beyond = self._first_of_another(batch.events)
            if beyond is None:
                yield batch
                continue
            ts = int(batch.events.commit_ts[beyond])  # a schema never changes within a commit_ts
            before = batch.events.before(ts)
            yield replace(batch, events=before, through=ts - 1, barrier=None, last=True, looked_at=None)
            return

    def _first_of_another(self, events: Events) -> int | None:
        if not len(events):
            return None
        numbers, firsts = np.unique(events.source, return_index=True)
        for at, number in sorted(zip(firsts.tolist(), numbers.tolist(), strict=True)):
            one = events.sets[number]
            schema = _schema_of(one)
            if self.schema is None:
                self.schema = schema
            elif not self.schema.equals(schema, check_metadata=True):
                return int(at)
        return None


def _schema_of(one: Rows | RawRows | Ddls) -> pa.Schema:
    match one:
        case Rows():
            return row_schema(one.version, one.columns)
        case RawRows():
            return RAW_SCHEMA
        case _:
            return DDL_SCHEMA


def one_stream(
    params: PullParams, source: TenantSource, scope: Scope, resolved_ts: Callable[[], int]
) -> OneStream | None:
    """Make the OneStream of an answer that must be a single Arrow stream; None if the answer may have several schemas.
    `resolved_ts` returns the tenant's."""
    if params.format != "arrow":
        return None
    if isinstance(scope, RawScope):
        return OneStream(lambda _: RAW_SCHEMA)
    if params.events == ALL:
        return None
    if params.events == DDL:
        return OneStream(lambda _: DDL_SCHEMA)
    assert scope.database is not None
    assert scope.table is not None
    database, table = scope.database, scope.table

    def in_force(ts: int | None) -> pa.Schema:
        known = resolved_ts()
        version = source.table(known if ts is None else min(ts, known), database, table)
        if version is None:
            return nameless_schema(database, table)
        shown = version.table.visible_columns if params.choice is None else params.choice.shown(version.table)
        return row_schema(version, shown)

    return OneStream(in_force)


class OneStreamEncoder:
    """Encodes an answer as a single Arrow stream. `OneStream.until_change` must have cut its events at a change of
    schema."""

    def __init__(self, one: OneStream) -> None:
        self._one = one
        self._seq = 0
        self._open = False

    def events(self, events: Events) -> Iterator[Piece]:
        """Encode the events as record batches of Arrow IPC. The schema message comes once, before the first batch."""
        for batch in batches(events, self._seq):
            yield from self._begin(batch.schema)
            yield memoryview(batch.serialize())
        self._seq += len(events)

    def end(self, end: PageEnd) -> Iterator[Piece]:
        """Encode the position as a batch without rows, with the position in its metadata."""
        schema = self._one.begun(end)
        yield from self._begin(schema)
        metadata = {"tistream.type": end.type}
        metadata |= {f"tistream.{name}": str(ts) for name, ts in end.stamps().items() if ts is not None}
        if end.cursor is not None:
            metadata["tistream.cursor"] = end.cursor
        yield marker_batch(schema, metadata)

    def close(self) -> Iterator[Piece]:
        """Encode the end of the stream."""
        yield END_OF_STREAM

    def _begin(self, schema: pa.Schema) -> Iterator[Piece]:
        if not self._open:
            self._open = True
            yield schema.serialize().to_pybytes()


def marker_batch(schema: pa.Schema, metadata: dict[str, str]) -> bytes:
    """The bytes of an IPC message: a batch of `schema` without rows, with this metadata."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(_nothing(schema))  # the writer puts the schema before this batch
        before = sink.tell()
        stream.write_batch(_nothing(schema), metadata)
        after = sink.tell()
    found: bytes = sink.getvalue()[before:after].to_pybytes()
    return found


def _nothing(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
