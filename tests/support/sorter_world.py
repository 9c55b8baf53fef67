"""A sorter node without HTTP: real tasks, real manifests, real kernel; objects in memory unless told otherwise.

The shards run in this process through the very function that Spark's workers call, or on a real Spark.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import polars as pl
import pyarrow as pa
from prometheus_client import CollectorRegistry

from support.golden import Delivery
from tistream.clock import ManualClock
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.rows import read_rows
from tistream.pool.task_log import TaskLog
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.change_reader import open_change_file, read_watermarks
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.object_store import ObjectStore
from tistream.wire.file_batch import WATERMARKS, FileRef, RowGroupRef
from tistream_sorter.jobs.compact import rewrite_guarded
from tistream_sorter.jobs.index.base_runs import base_guarded
from tistream_sorter.jobs.index.base_unit import BaseResult, BaseUnit
from tistream_sorter.jobs.index.index_merge import merge_guarded
from tistream_sorter.jobs.index.index_unit import IndexResult, IndexUnit
from tistream_sorter.jobs.rewrite import Rewrite, Rewritten
from tistream_sorter.jobs.shard import Shard, ShardResult
from tistream_sorter.jobs.shard_io import process_guarded
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.node.node import SorterNode
from tistream_sorter.node.tick_jobs import Runner
from tistream_sorter.state.task_state import TaskIdentity
from tistream_sorter.task.task_machine import TickLimits
from tistream_sorter.task.tick import TaskFile
from tistream_sorter.upkeep.index_plan import IndexRules
from tistream_sorter.upkeep.shards import CutRules


class InlineRunner:
    """Runs shards one after the other, here."""

    def __init__(self, objects: ObjectStore) -> None:
        self.objects = objects

    def run(self, shards: Sequence[Shard], *, beside: bool = False) -> list[ShardResult]:
        return [process_guarded(self.objects, shard) for shard in shards]

    def rewrite(self, units: Sequence[Rewrite]) -> list[Rewritten]:
        return [rewrite_guarded(self.objects, unit) for unit in units]

    def merge_index(self, units: Sequence[IndexUnit]) -> list[IndexResult]:
        return [merge_guarded(self.objects, unit) for unit in units]

    def bases(self, units: Sequence[BaseUnit]) -> list[BaseResult]:
        return [base_guarded(self.objects, unit) for unit in units]


class Origin(Protocol):
    """Whose changes: a golden set, or a random cluster."""

    @property
    def tenant(self) -> TenantKey: ...
    @property
    def snapshot_ts(self) -> int: ...


class SorterWorld:
    """One tenant cut at `bounds`, its files in memory, and one node that holds all of its tasks."""

    def __init__(
        self,
        golden: Origin,
        bounds: Sequence[bytes],
        *,
        shards: int = 1,
        shard_bytes_min: int = 1 << 30,
        cut: CutRules | None = None,
        objects: ObjectStore | None = None,
        runner: Runner | None = None,
        index: IndexRules | None = None,
        raw: bool = False,
    ) -> None:
        self.golden = golden
        self.raw = raw
        self.objects = objects or MemoryObjectStore()
        self.runner = runner or InlineRunner(self.objects)
        self.clock = ManualClock(golden.snapshot_ts >> 18)
        edges = [b"", *sorted(bounds), b""]
        self.spans = [KeySpan(start, end) for start, end in pairwise(edges)]
        self.limits = TickLimits(1 << 30, 10_000, 10_000, cut or CutRules(shards, shard_bytes_min), index=index)
        self.epoch = 0
        self.chain: dict[tuple[int, int], int] = {}  # (store, ts) -> first file of its chain
        self.sent: list[TaskFile] = []
        self._nonces = random.Random(7)
        self.start()

    def start(self) -> None:
        """A new process with a new epoch; the one before is forgotten with all its memory."""
        self.epoch += 1
        self.node = SorterNode(
            MeasuredObjectStore(self.objects),
            self.runner,
            self.limits,
            self.clock,
            lambda: f"{self._nonces.getrandbits(64):016x}",
            SorterMetrics(CollectorRegistry()),
        )
        self.identities = [
            TaskIdentity(self.golden.tenant, number, span, self.golden.snapshot_ts, self.epoch, raw=self.raw)
            for number, span in enumerate(self.spans, 1)
        ]
        assert self.node.assign(self.identities)

    def push(self, delivery: Delivery) -> None:
        """Put a file and route it to every task, as a dispatcher would."""
        self.objects.put(delivery.key, delivery.data)
        for file in self.route(delivery.key):
            self.sent.append(file)
        self.send(self.sent[-len(self.spans) :])

    def send(self, files: Sequence[TaskFile]) -> None:
        """Offer files to the tasks that they are for."""
        for file in files:
            (task_id,) = file.ref.row_groups
            task = self.node.find(task_id)
            assert task is not None
            assert task.offer([file], self.clock.monotonic_ms())

    def route(self, key: str) -> list[TaskFile]:
        """One TaskFile per task, in task order."""
        opened = open_change_file(self.objects, key)
        rows = read_watermarks(self.objects, opened).to_pylist()
        store = opened.store_id
        # Chains of one store may come side by side: a file belongs to the one of the file that it follows.
        self.chain[store, opened.ts] = self.chain[store, opened.prev_ts] if opened.prev_ts else opened.ts
        groups = tuple(
            RowGroupRef(g.index, g.offset, g.length, g.rows, g.crc32, g.key_min, g.key_max, g.unpacked)
            for g in opened.change_groups
        )
        out = []
        for task_id, span in enumerate(self.spans, 1):
            wanted = tuple(
                g.index for g in groups if g.key_min is None or g.key_max is None or span.touches(g.key_min, g.key_max)
            )
            ref = FileRef(
                cluster_id=self.golden.tenant.cluster_id,
                tenant_id=self.golden.tenant.tenant_id,
                store_id=store,
                ts=opened.ts,
                prev_ts=opened.prev_ts,
                chain_ts=self.chain[store, opened.ts],
                key=key,
                size=opened.size,
                footer_start=opened.footer_start,
                arrived_ms=0,
                groups=groups,
                row_groups={task_id: wanted},
            )
            out.append(TaskFile(ref, _clipped(rows, span, task_id)))
        return out

    def tick(self) -> None:
        """Ticks until nothing is left to do."""
        for _ in range(50):
            if not self.node.tick():
                return
        raise AssertionError("the node does not come to rest")

    def stopped(self) -> list[str]:
        return [task.stopped for task in self.node.tasks() if task.stopped]

    def progress_ts(self) -> int:
        return min(task.state.progress_ts for task in self.node.tasks())

    def pool(self) -> pl.DataFrame:
        """Everything committed, in (commit_ts, start_ts, key) order."""
        tables = []
        for task_id in range(1, len(self.spans) + 1):
            log = TaskLog(self.objects, self.golden.tenant, task_id)
            log.refresh()
            tables += [read_rows(self.objects, s, Window(0, 2**62)) for s in log.segments]
        frame = pl.from_arrow(pa.concat_tables(tables))
        assert isinstance(frame, pl.DataFrame)
        return frame.sort("commit_ts", "start_ts", "key")


def _clipped(rows: Sequence[dict[str, Any]], span: KeySpan, task_id: int) -> pa.Table:
    out = []
    for row in rows:
        piece = KeySpan(row["start_key"], row["end_key"]).clip(span)
        if piece is not None:
            out.append({**row, "file": 0, "task_id": task_id, "start_key": piece.start, "end_key": piece.end})
    return pa.Table.from_pylist(out, schema=WATERMARKS)
