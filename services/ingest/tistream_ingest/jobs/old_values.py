"""Old values: the newest version of keys at a ts, from the tenant's committed pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import polars as pl
import pyarrow as pa

from tistream.decode.keys import table_ids
from tistream.format.segment import OP_PUT, SegmentRef
from tistream.model.ts import Window
from tistream.pool.rows import read_rows
from tistream.storage.object_store import ObjectStore
from tistream_ingest.jobs.work import Pool

_KEY = pl.Schema({"key": pl.Binary()})


class OldValues(Protocol):
    """Reads the pool. Complete up to a flushed_ts that is at or above every ts asked for."""

    def at(self, keys: pa.Array, ts: int) -> pa.Array:
        """The value of each key in its newest version at or below `ts`; null if it was deleted or never there. `keys`
        are sorted and distinct. The result is binary and has the order of `keys`."""

    def commits(self, keys: pa.Array, commit_ts: pa.Array) -> pa.Array:
        """Whether the pool has a row of each (key, commit_ts), as booleans."""


class SegmentValues:
    """OldValues from the pool's segments, read newest first."""

    def __init__(self, objects: ObjectStore, pool: Pool) -> None:
        self._objects = objects
        self._segments = sorted(pool.segments, key=lambda one: one.commit_ts_max, reverse=True)

    def at(self, keys: pa.Array, ts: int) -> pa.Array:
        if not len(keys):
            return pa.array([], pa.binary())
        wanted = pl.DataFrame({"key": pl.from_arrow(keys)}, schema=_KEY)
        tables = sorted(set(table_ids(keys).tolist()))
        window = Window(0, ts)
        found: pl.DataFrame | None = None
        for segment in self._segments:
            if found is not None:
                final = found.filter(pl.col("commit_ts") > segment.commit_ts_max)
                if final.height == wanted.height:
                    break
            rows = _rows(self._objects, segment, window, tables, ("key", "commit_ts", "op", "value"))
            rows = rows.join(wanted, on="key", how="semi")
            if rows.height:
                both = rows if found is None else pl.concat([found, rows])
                found = both.sort("key", "commit_ts", descending=[False, True]).unique("key", keep="first")
        if found is None:
            return pa.nulls(len(keys), pa.binary())
        value = pl.when(pl.col("op") == OP_PUT).then(pl.col("value"))
        joined = wanted.join(found.select("key", value=value), on="key", how="left", maintain_order="left")
        return joined["value"].to_arrow().cast(pa.binary())

    def commits(self, keys: pa.Array, commit_ts: pa.Array) -> pa.Array:
        wanted = pl.DataFrame({"key": pl.from_arrow(keys), "commit_ts": pl.from_arrow(commit_ts)})
        there = wanted.clear()
        if wanted.height:
            times = wanted["commit_ts"]
            window = Window(int(times.min()) - 1, int(times.max()))  # type: ignore[arg-type]
            tables = sorted(set(table_ids(keys).tolist()))
            for segment in self._segments:
                rows = _rows(self._objects, segment, window, tables, ("key", "commit_ts"))
                there = pl.concat([there, rows.join(wanted, on=["key", "commit_ts"], how="semi")])
        marked = there.unique().with_columns(there=pl.lit(True))
        joined = wanted.join(marked, on=["key", "commit_ts"], how="left", maintain_order="left")
        return joined["there"].fill_null(False).to_arrow()


def _rows(
    objects: ObjectStore, segment: SegmentRef, window: Window, tables: Sequence[int], columns: Sequence[str]
) -> pl.DataFrame:
    found = pl.from_arrow(read_rows(objects, segment, window, tables, columns))
    assert isinstance(found, pl.DataFrame)
    return found.select(columns)
