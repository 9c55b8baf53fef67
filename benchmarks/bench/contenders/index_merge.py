"""Runs of the version index to one run: the sorter's job, and Polars over the same objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from bench.inputs.changes import TENANT
from bench.inputs.version_runs import EPOCH, TASK
from tistream.format.run import RunRef
from tistream.format.segment import OP_DELETE
from tistream.model.span import WHOLE
from tistream.pool.run_writer import LEVEL
from tistream.storage.open import open_objects
from tistream_sorter.jobs.index.index_merge import merge_guarded
from tistream_sorter.jobs.index.index_unit import IndexUnit


class Merge:
    """What one Spark worker does for a unit and its shards, one after the other. With `fold` the output is a base
    run, otherwise it has every version. A call returns the paths of the objects."""

    def __init__(self, root: str, runs: Sequence[RunRef], fold: bool) -> None:
        self._root, self._objects = Path(root), open_objects(root)
        low_ts = None if fold else runs[0].low_ts
        self._unit = IndexUnit(TENANT, TASK, EPOCH, "merged", WHOLE, low_ts, runs[-1].high_ts, runs=tuple(runs))

    def __call__(self) -> list[str]:
        done = merge_guarded(self._objects, self._unit)
        results = [done]
        if done.shards:
            units = [replace(self._unit, shard=span, number=at) for at, span in enumerate(done.shards)]
            results = [merge_guarded(self._objects, unit) for unit in units]
        failed = [one.failed for one in results if one.failed]
        assert not failed, failed
        return [str(self._root / run.key) for one in results for run in one.runs]


class PolarsMerge:
    """The same with Polars: concatenate, sort, with `fold` keep the newest of each key, write Parquet."""

    def __init__(self, paths: Sequence[str], target: str, fold: bool) -> None:
        self._paths, self._target, self._fold = list(paths), target, fold

    def __call__(self) -> list[str]:
        read = [pl.DataFrame(pq.read_table(path, use_threads=False)) for path in self._paths]
        rows = pl.concat(read).sort("key", "commit_ts", descending=[False, True])
        if self._fold:
            rows = rows.unique("key", keep="first", maintain_order=True).filter(pl.col("op") != OP_DELETE)
        rows.write_parquet(self._target, compression="zstd", compression_level=LEVEL)
        return [self._target]
