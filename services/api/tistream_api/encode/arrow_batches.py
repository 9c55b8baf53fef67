"""Converts events to Arrow record batches, with one schema for each table and set of columns (docs/api.md, "Formats").
Pure. Between two DDL events rows are grouped by table. The column `seq`, the event's number in the answer, restores the
order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tistream.read.arrow.row_batches import VERSION, row_batches
from tistream.read.cursor import Place
from tistream.read.events import Ddls, Events
from tistream_api.encode.page_end import PageEnd
from tistream_api.encode.raw_encoding import is_raw, record_batches

_NAMES = pa.struct([pa.field("database", pa.string()), pa.field("table", pa.string())])
DDL_SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("commit_ts", pa.int64(), nullable=False),
        pa.field("database", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("query", pa.large_string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("schema_version", pa.int64(), nullable=False),
        pa.field("involved", pa.list_(_NAMES), nullable=False),
    ],
    metadata={"tistream.version": VERSION, "tistream.type": "ddl"},
)


def batches(events: Events, seq: int) -> Iterator[pa.RecordBatch]:
    """Yield the events as batches, in which rows have at most BATCH_ROWS, and consecutive DDL events are one batch.
    `seq` is the number of the first event in the answer."""
    if not len(events):
        return
    if is_raw(events):
        yield from record_batches(events, seq)
        return
    ddl = events.place != int(Place.ROW)
    edges = np.flatnonzero(ddl[1:] != ddl[:-1]) + 1
    for start, end in pairwise([0, *edges.tolist(), len(events)]):
        stretch = events.between(start, end)
        if ddl[start]:
            yield _ddl_batch(stretch, seq + start)
        else:
            yield from row_batches(stretch, seq + start)


def end_batch(end: PageEnd) -> pa.RecordBatch:
    """A batch of one row, which states the position at the end of the answer."""
    stamps = end.stamps()
    schema = pa.schema(
        [*(pa.field(name, pa.int64()) for name in stamps), pa.field("cursor", pa.string(), nullable=bool(end.between))],
        metadata={"tistream.version": VERSION, "tistream.type": end.type},
    )
    values = [pa.array([ts], pa.int64()) for ts in stamps.values()]
    return pa.record_batch([*values, pa.array([end.cursor], pa.string())], schema=schema)


def _ddl_batch(events: Events, seq: int) -> pa.RecordBatch:
    found = []
    for number, (source, at) in enumerate(zip(events.source.tolist(), events.at.tolist(), strict=True)):
        one = events.sets[source]
        assert isinstance(one, Ddls)
        event = one.events[at]
        named = {name: getattr(event, name) for name in DDL_SCHEMA.names[1:-1]}
        involved = [{"database": database, "table": table} for database, table in event.involved]
        found.append({"seq": seq + number, **named, "involved": involved})
    return pa.RecordBatch.from_pylist(found, schema=DDL_SCHEMA)
