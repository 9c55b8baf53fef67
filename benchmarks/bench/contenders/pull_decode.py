"""Rows to what a consumer reads: TiStream's decoder and whole answers, and other engines with half of the work done."""

from __future__ import annotations

import io
from collections.abc import Callable

import duckdb
import orjson
import polars as pl
import pyarrow as pa

from bench.inputs.mixed_rows import committed, table_info
from bench.inputs.pulled_pool import SNAPSHOT_TS, PulledPool
from tistream.decode import warm
from tistream.decode.json_text import render_objects
from tistream.decode.rows import decode_rows
from tistream.pool.writer import write_segment
from tistream.schema.tidb.table import parse_table
from tistream.storage.backends.memory import MemoryObjectStore

BATCH = 16_384
SEGMENT_ROWS = 262_144


class Decode:
    """Row values to Arrow columns; with `text`, on to NDJSON objects. Gives the bytes made."""

    def __init__(self, rows: int, text: bool) -> None:
        warm()
        self._table = parse_table(table_info())
        pool = committed(rows, SNAPSHOT_TS)
        self._keys, self._values = (pool.column(name).combine_chunks() for name in ("key", "value"))
        self._text = text

    def __call__(self) -> int:
        table, made = self._table, 0
        for at in range(0, len(self._keys), BATCH):
            found = decode_rows(
                table, table.visible_columns, self._keys.slice(at, BATCH), self._values.slice(at, BATCH)
            )
            assert not found.errors
            made += len(render_objects(table.visible_columns, found.batch)) if self._text else found.batch.num_rows
        return made


class Columns:
    """Columns that are decoded already, to NDJSON objects, by `engine`."""

    def __init__(self, rows: int, engine: str) -> None:
        warm()
        table = parse_table(table_info())
        pool = committed(rows, SNAPSHOT_TS)
        found = decode_rows(table, table.visible_columns, pool.column("key"), pool.column("value"))
        names = [column.name for column in table.visible_columns]
        self._columns = pa.table(found.batch.columns, names=names)
        self._frame = pl.from_arrow(self._columns)
        self._write: Callable[[], object] = {"polars": self._polars, "duckdb": self._duckdb, "orjson": self._orjson}[
            engine
        ]
        self._database = duckdb.connect(config={"threads": 1})
        self._database.register("columns", self._columns)

    def __call__(self) -> int:
        self._write()
        return int(self._columns.num_rows)

    def _polars(self) -> None:
        assert isinstance(self._frame, pl.DataFrame)
        self._frame.write_ndjson(io.BytesIO())

    def _duckdb(self) -> None:
        self._database.execute("COPY columns TO '/dev/null' (FORMAT json)")

    def _orjson(self) -> None:
        for batch in self._columns.to_batches(BATCH):
            b"\n".join(map(orjson.dumps, batch.to_pylist()))


class PullAnswer:
    """A whole answer of the API server, without HTTP: from segments in memory to bytes. `warm_cache`: from row groups
    that the server still holds."""

    def __init__(self, rows: int, updates: float, form: str, warm_cache: bool) -> None:
        warm()
        pool = committed(rows, SNAPSHOT_TS, updates=updates)
        objects, segments = MemoryObjectStore(), []
        for at in range(0, rows, SEGMENT_ROWS):
            body, ref = write_segment(pool.slice(at, SEGMENT_ROWS), f"segment-{at}")
            objects.put(ref.key, body)
            segments.append(ref)
        end_ts = int(pool.column("commit_ts")[-1].as_py())
        self._form = form
        self._given = (objects, segments, end_ts, 1, 1 << 30)
        self._pool = PulledPool(*self._given) if warm_cache else None

    def __call__(self) -> int:
        pool = self._pool or PulledPool(*self._given)
        return sum(len(piece) for piece in pool.pull("bench", "mixed_0", form=self._form))
