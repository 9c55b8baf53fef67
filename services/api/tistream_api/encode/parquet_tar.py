"""Encodes events as Parquet files in a tar archive (docs/api.md, "Formats"). Pure."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tistream.read.events import Events
from tistream_api.encode.arrow_batches import batches
from tistream_api.encode.page_end import PageEnd
from tistream_api.encode.piece import Piece

# Bytes of events that are buffered before a file is written; a tar archive needs a file's size before the file.
HELD_BYTES = 8 << 20

_BLOCK = 512
_NO_MEMBERS = pa.field("_", pa.bool_())


class ParquetEncoder:
    """Encodes events as Parquet files in a tar archive. Batches are buffered until there are HELD_BYTES of them; then
    one file is written for each schema among them, in the order of their first events."""

    def __init__(self) -> None:
        self._seq = 0
        self._files = 0
        self._held: dict[bytes, list[pa.RecordBatch]] = {}
        self._held_bytes = 0

    def events(self, events: Events) -> Iterator[Piece]:
        """Buffer the events. Returns the tar entries of Parquet files once enough is buffered, otherwise nothing."""
        for batch in batches(events, self._seq):
            self._held.setdefault(batch.schema.serialize().to_pybytes(), []).append(batch)
            self._held_bytes += batch.nbytes
            if self._held_bytes >= HELD_BYTES:
                yield from self._flush()
        self._seq += len(events)

    def end(self, end: PageEnd) -> Iterator[Piece]:
        """Encode all buffered batches as Parquet files, and the position as a JSON file. Returns their tar entries."""
        yield from self._flush()
        members: dict[str, str | None] = {"type": end.type}
        members |= {name: str(ts) for name, ts in end.stamps().items() if ts is not None}
        members["cursor"] = end.cursor
        yield from self._member("end.json", orjson.dumps(members, option=orjson.OPT_APPEND_NEWLINE))

    def close(self) -> Iterator[Piece]:
        """The blocks that end a tar archive. An archive without them is incomplete."""
        yield bytes(2 * _BLOCK)

    def _flush(self) -> Iterator[Piece]:
        held, self._held, self._held_bytes = self._held, {}, 0
        while held:
            found = held.pop(next(iter(held)))
            metadata = found[0].schema.metadata
            kind = metadata[b"tistream.type"].decode()
            name = f"{kind}-{metadata[b'tistream.table_id'].decode()}" if kind == "row" else kind
            yield from self._member(f"{name}.parquet", _file(pa.Table.from_batches(found)))

    def _member(self, name: str, body: Piece) -> Iterator[Piece]:
        self._files += 1
        head = tarfile.TarInfo(f"{self._files:06d}-{name}")
        head.size = len(body)
        head.mode = 0o644
        yield head.tobuf(tarfile.USTAR_FORMAT)
        yield body
        if gap := -len(body) % _BLOCK:
            yield bytes(gap)


def storable(table: pa.Table) -> pa.Table:
    """The table with a null member added to each struct without members, because Parquet does not support empty
    structs."""
    for name in ("row", "old_row"):
        at = table.schema.get_field_index(name)
        if at >= 0 and table.schema.field(at).type.num_fields == 0:
            table = table.set_column(at, pa.field(name, pa.struct([_NO_MEMBERS])), _with_a_member(table.column(at)))
    return table


def _file(table: pa.Table) -> memoryview:
    table = storable(table)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **_OPTIONS)
    return memoryview(sink.getvalue())


def _with_a_member(column: pa.ChunkedArray) -> pa.Array:
    gone = column.combine_chunks().is_null()
    return pa.StructArray.from_arrays([pa.nulls(len(column), pa.bool_())], fields=[_NO_MEMBERS], mask=gone)


_OPTIONS = {"compression": "zstd", "compression_level": 1, "write_statistics": ["commit_ts"]}
