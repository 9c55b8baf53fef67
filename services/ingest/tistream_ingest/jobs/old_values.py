"""Reads old values, the newest version of each key at a ts, from the tenant's committed rows (its pool)."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import polars as pl
import pyarrow as pa

from tistream.decode.keys import table_ids
from tistream.model.ts import Window
from tistream.pool.versions.lookup import PLACES, newest_at, versions_of
from tistream.pool.versions.reader import StoreReader
from tistream.storage.object_store import ObjectStore
from tistream_ingest.jobs.work import PoolShards


class OldValues(Protocol):
    """The interface for reading old values. The pool must have every version up to the requested ts."""

    def at(self, keys: pa.Array, ts: int) -> pa.Array:
        """The value of the newest version of each key at or below `ts`; null if the key was deleted or never existed.
        `keys` are sorted and distinct. The result is binary and has the order of `keys`."""

    def commits(self, keys: pa.Array, commit_ts: pa.Array) -> pa.Array:
        """For each (key, commit_ts), whether the pool has a version with it, as a boolean array. The input is sorted by
        key."""


class PoolValues:
    """Implements OldValues by reading the runs and segments of a pool."""

    def __init__(self, objects: ObjectStore, pool: PoolShards) -> None:
        self._shards = pool.shards
        self._reader = StoreReader(objects)

    def at(self, keys: pa.Array, ts: int) -> pa.Array:
        if not len(keys) or not self._shards:
            return pa.nulls(len(keys), pa.binary())
        return newest_at(self._shards, self._reader, _places(keys), ts)["value"].combine_chunks().cast(pa.binary())

    def commits(self, keys: pa.Array, commit_ts: pa.Array) -> pa.Array:
        if not len(keys):
            return pa.array([], pa.bool_())
        wanted = pl.DataFrame({"key": pl.from_arrow(keys), "commit_ts": pl.from_arrow(commit_ts)})
        times = commit_ts.to_numpy()
        window = Window(int(np.min(times)) - 1, int(np.max(times)))
        places = _places(wanted["key"].unique(maintain_order=True).to_arrow().cast(pa.binary()))
        there = pl.from_arrow(versions_of(self._shards, self._reader, places, window).select(["key", "commit_ts"]))
        assert isinstance(there, pl.DataFrame)
        marked = there.unique().with_columns(there=pl.lit(True))
        joined = wanted.join(marked, on=["key", "commit_ts"], how="left", maintain_order="left")
        return joined["there"].fill_null(False).to_arrow()


def _places(keys: pa.Array) -> pa.Table:
    return pa.table([pa.array(table_ids(keys)), keys], schema=PLACES)
