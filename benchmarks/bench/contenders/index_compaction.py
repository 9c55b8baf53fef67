"""The version index of a task from its first segment on, by the sorter's planner and merges; and DuckDB, which sorts
the same segments once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import duckdb

from bench.inputs.changes import TENANT
from bench.inputs.pulled_pool import SNAPSHOT_TS
from tistream.format.run import RunRef
from tistream.format.segment import SegmentRef
from tistream.model.span import WHOLE
from tistream.model.ts import physical_ms
from tistream.storage.open import open_objects
from tistream_sorter.jobs.index.index_merge import merge_guarded
from tistream_sorter.jobs.index.index_unit import IndexUnit
from tistream_sorter.state.task_state import Retention, TaskIdentity, TaskState, first_state
from tistream_sorter.upkeep.index_plan import IndexRules, index_unit
from tistream_sorter.upkeep.retention import retained
from tistream_sorter.upkeep.version_index import BYTES_IN, BYTES_OUT, merged

IDENTITY = TaskIdentity(TENANT, 1, WHOLE, SNAPSHOT_TS, 1)


@dataclass(frozen=True, slots=True)
class Life:
    """What became of the index. `taken`, `written`: bytes of segments, and of run objects."""

    merges: int
    taken: int
    written: int
    versions: int


class IndexLife:
    """A call lets the segments come one after the other, and merges what is due after each. `keep_ms`: the tenant's
    retention."""

    def __init__(self, root: str, segments: Sequence[SegmentRef], rules: IndexRules, keep_ms: int | None) -> None:
        self._objects, self._segments, self._rules = open_objects(root), segments, rules
        self._retention = Retention(keep_ms, indexed=True)
        self._calls = self._merges = 0

    def __call__(self) -> Life:
        self._calls, self._merges = self._calls + 1, 0
        state = replace(first_state(IDENTITY, 1), flushed_ts=SNAPSHOT_TS, retention=self._retention)
        for one in self._segments:
            state = self._at(replace(state, live_segments=(*state.live_segments, one)), one.commit_ts_max)
        state = self._at(state, state.flushed_ts + (self._rules.wait_ms << 18))  # the newest rows have waited, too
        versions = sum(run.rows for part in state.index for run in part.runs)
        return Life(self._merges, state.counters[BYTES_IN], state.counters[BYTES_OUT], versions)

    def _at(self, state: TaskState, ts: int) -> TaskState:
        """The state at `ts`, after everything that is due then."""
        now_ms = physical_ms(ts)
        state = retained(replace(state, flushed_ts=ts), now_ms)
        while (unit := index_unit(state, self._rules, now_ms, f"{self._calls:04x}{self._merges:08x}")) is not None:
            after = merged(state, unit, self._written(unit))
            assert after is not None
            state, self._merges = after, self._merges + 1
        return state

    def _written(self, unit: IndexUnit) -> list[RunRef]:
        done = merge_guarded(self._objects, unit)
        shards = [replace(unit, shard=span, number=at) for at, span in enumerate(done.shards)]
        results = [merge_guarded(self._objects, one) for one in shards] or [done]
        failed = [one.failed for one in results if one.failed]
        assert not failed, failed
        return [run for one in results for run in one.runs]


class DuckDbSort:
    """A call sorts the rows of the segments by key, newest first, into one Parquet file. Returns their number."""

    def __init__(self, paths: Sequence[str], target: str) -> None:
        self._paths, self._target = list(paths), target
        self._database = duckdb.connect(config={"threads": 1})

    def __call__(self) -> int:
        columns = "table_id, key, commit_ts, start_ts, op, value, txn_source"
        files = ", ".join(f"'{path}'" for path in self._paths)
        sql = f"SELECT {columns} FROM read_parquet([{files}]) ORDER BY key, commit_ts DESC"
        found = self._database.execute(f"COPY ({sql}) TO '{self._target}' (FORMAT parquet, COMPRESSION zstd)")
        row = found.fetchone()
        assert row is not None
        return int(row[0])
