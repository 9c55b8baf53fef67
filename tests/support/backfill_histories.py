"""Random histories of a version index in which backfills bring rows that are older than the log: at random ts, while
tasks are split and merged, rows are folded and dropped, and jobs and processes die."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from prometheus_client import CollectorRegistry

from support.index_histories import DEATHS, DyingMerger, IndexHistory
from support.index_reader import Version, state_at
from tistream.format.backfill.base_chunk import SCHEMA, UNKNOWN_TS, ChunkId, write_chunk
from tistream.format.backfill.chunk_plan import ChunkPlan, encode_plan
from tistream.format.segment import OP_PUT
from tistream.model.base_cover import Cover, base_ts_of, clipped, laid_over
from tistream.model.span import KeySpan
from tistream.model.ts import from_physical_ms
from tistream.schema.tidb.meta_change import record_span
from tistream.storage import layout
from tistream.storage.measured import MeasuredObjectStore
from tistream_sorter.jobs.index.base_unit import BaseResult, BaseUnit
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.node.base_converter import BaseConverter, ListedBackfill
from tistream_upstream.config import ClusterConfig

RECORD = slice(9, 11)


class DyingConverter(DyingMerger):
    """A BaseConverter some of whose jobs die."""

    def bases(self, units: Sequence[BaseUnit]) -> list[BaseResult]:
        if self._fate.random() >= DEATHS:
            return super().bases(units)
        super().bases(units[: self._fate.randrange(len(units) + 1)])
        raise RuntimeError("the executor was lost")


@dataclass
class Open:
    """An open backfill: its plan, and the chunks that were not pushed yet."""

    plan: ChunkPlan
    left: list[int] = field(default_factory=list)


class BackfillHistory(IndexHistory):
    """`older`: rows that were there before the log: value and commit_ts. The log has no old values of them, as that of
    a log backup. `covered`: how many reads have compared such a row that a base covers."""

    def __init__(self, config: ClusterConfig, seed: int, ms: int = 4_000, keep_ms: int | None = None) -> None:
        self.luck = random.Random(seed + 8)
        super().__init__(config, seed, ms, keep_ms, new_runner=lambda objects: DyingConverter(objects, self.luck))
        self.older = self._older_rows()
        self.tables = sorted({int.from_bytes(key[1:9], "big") - (1 << 63) for key in self.older})
        self.begun: dict[str, Open] = {}
        self.number = self.covered = 0
        self.world.limits = replace(self.world.limits, backfills=True)
        self.world.crash()
        self._new_converter()

    def _older_rows(self) -> dict[bytes, tuple[bytes, int]]:
        """Of half of the keys of rows that the log has, and of some that it never has."""
        records = sorted({key for key, _ in self.rows if key[:1] == b"t" and key[RECORD] == b"_r"})
        found = [key for key in records if self.luck.random() < 0.5]
        found += [key + b"\x01" for key in records if self.luck.random() < 0.2]
        snapshot_ts = self.upstream.snapshot_ts
        return {
            key: (b"older %d" % number, snapshot_ts - self.luck.randrange(1 << 20))
            for number, key in enumerate(sorted(found))
        }

    def _new_converter(self) -> None:
        nonces = random.Random(self.luck.random())
        world, metrics = self.world, SorterMetrics(CollectorRegistry())
        self.node = world.node
        self.converter = BaseConverter(
            MeasuredObjectStore(self.objects),
            DyingConverter(self.objects, self.luck),
            world.clock,
            lambda: f"{nonces.getrandbits(64):016x}",
            metrics,
        )

    # -- what happens -------------------------------------------------------------------------------------------------

    def something(self) -> None:
        super().something()
        luck = self.luck
        if len(self.begun) < 2 and luck.random() < 0.15:
            self.begin()
        for backfill_id, one in list(self.begun.items()):
            while one.left and luck.random() < 0.7:
                self.push(backfill_id, one.left.pop())
            if luck.random() < (0.05 if one.left else 0.1):  # cancelled, or over
                del self.begun[backfill_id]
        if luck.random() < 0.8:
            self.take()

    def take(self) -> bool:
        """Run one step of the base converter of the live process."""
        if self.node is not self.world.node:
            self._new_converter()
        self.converter.set_backfills(
            [ListedBackfill(self.upstream.tenant, one, old_values=False) for one in self.begun]
        )
        return self.converter.convert([task for task in self.world.node.tasks() if task.stopped is None])

    def begin(self) -> None:
        """Put a plan of some tables, cut at random keys."""
        spans: list[KeySpan] = []
        for table_id in self.luck.sample(self.tables, self.luck.randint(1, len(self.tables))):
            whole = record_span(table_id)
            inside = [key for key in self.older if key in whole]
            cuts = sorted(self.luck.sample(inside, min(len(inside), self.luck.randint(0, 3))))
            spans += [KeySpan(*edges) for edges in itertools.pairwise([whole.start, *cuts, whole.end])]
        self.number += 1
        begins = [max(task.durable.retained_ts, self.upstream.snapshot_ts) for task in self.world.node.tasks()]
        plan = ChunkPlan(tuple(sorted(spans, key=lambda span: span.start)), max(begins, default=1))
        backfill_id = f"b{self.number}"
        self.objects.put_new(layout.backfill_plan(self.upstream.tenant, backfill_id), encode_plan(plan))
        numbers = list(range(len(spans)))
        self.luck.shuffle(numbers)
        self.begun[backfill_id] = Open(plan, numbers)

    def push(self, backfill_id: str, number: int) -> None:
        """Push a chunk as of a ts that the log has reached or will reach; sometimes below the plan's min_ts."""
        plan, luck = self.begun[backfill_id].plan, self.luck
        now_ts = max([plan.min_ts, *(task.durable.flushed_ts for task in self.world.node.tasks())])
        says = luck.choice([plan.min_ts, luck.randint(plan.min_ts, now_ts), now_ts, now_ts + from_physical_ms(100)])
        says = min(says, max(self.upstream.end_ts, plan.min_ts)) if luck.random() < 0.97 else plan.min_ts - 1
        span = plan.spans[number]
        identity = ChunkId(self.upstream.tenant, backfill_id, number)
        rows = [(key, value, luck.choice([None, at])) for key, (value, at) in self._state(span, says).items()]
        table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in sorted(rows)], SCHEMA)
        self.objects.put_new(
            layout.base_chunk(identity.tenant, backfill_id, number), write_chunk([table], identity, span, says)
        )

    def _state(self, span: KeySpan, ts: int) -> dict[bytes, tuple[bytes, int]]:
        """The rows of a span at `ts`, with their commit_ts."""
        found = {key: row for key, row in self.older.items() if key in span}
        logged = ((key, at) for key, at in self.rows if at <= ts and key in span)
        for key, at in sorted(logged, key=lambda one: one[1]):
            op, value, _, _ = self.rows[key, at]
            found.pop(key, None)
            if op == OP_PUT:
                found[key] = value, at
        return found

    # -- what must be true --------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Continue until no work is left; one more backfill of every table is then applied completely."""
        self.begin_whole()
        for _ in range(300):
            self.world.tick()
            if not self.take():
                break
            self.world.clock.advance(11_000)
        for backfill_id in list(self.begun):
            del self.begun[backfill_id]
        self.take()
        super().settle()

    def begin_whole(self) -> None:
        """A backfill of every table as of the end of the log."""
        self.world.withheld.clear()
        self.world.tick()
        self.begun.clear()
        self.number += 1
        plan = ChunkPlan(tuple(record_span(table_id) for table_id in self.tables), self.upstream.end_ts)
        self.objects.put_new(layout.backfill_plan(self.upstream.tenant, f"b{self.number}"), encode_plan(plan))
        self.begun[f"b{self.number}"] = Open(plan, [])
        for number in range(len(plan.spans)):
            self.push(f"b{self.number}", number)

    def bases(self) -> Cover:
        """The bases of the whole tenant."""
        return laid_over((), (base for one in self.covers() for base in clipped(one.log.view.cover, one.span)))

    def compare(self) -> None:
        """At some ts: what the log has of a key counts. Of a key that it does not have, the older row is there once a
        base covers it; before, it may be."""
        covers = self.covers()
        views = [cover.log.view for cover in covers]
        lowest = max([self.upstream.snapshot_ts, *(view.base_ts for view in views)])
        highest = min(view.flushed_ts for view in views)
        if highest < lowest:
            return
        bases = self.bases()
        for ts in {lowest, highest, self.more.randint(lowest, highest)}:
            found: dict[bytes, tuple[int, Version]] = {}
            for (key, at), version in state_at(self.objects, covers, ts).items():
                assert key not in found, f"{key.hex()} is there twice"
                found[key] = at, version
            newest: dict[bytes, int] = {}
            for key, commit_ts in self.rows:
                if commit_ts <= ts:
                    newest[key] = max(newest.get(key, 0), commit_ts)
            for key, at in newest.items():
                op, value, txn_source, start_ts = self.rows[key, at]
                one = found.pop(key, None)
                wanted = (at, value, txn_source, start_ts) if op == OP_PUT else None
                got = None if one is None else (one[0], one[1].value, one[1].txn_source, one[1].start_ts)
                assert got == wanted, f"{key.hex()} at {ts}"
            self._compare_older(bases, found, newest, ts)
            self.reads += 1

    def _compare_older(
        self, bases: Cover, found: dict[bytes, tuple[int, Version]], logged: dict[bytes, int], ts: int
    ) -> None:
        for key, (at, version) in found.items():
            assert key in self.older, f"{key.hex()} was never there"
            value, commit_ts = self.older[key]
            assert (version.value, version.op) == (value, OP_PUT)
            assert at in (UNKNOWN_TS, commit_ts)
        for key in self.older.keys() - logged.keys():
            base_ts = base_ts_of(bases, [KeySpan(key, key + b"\0")])
            if isinstance(base_ts, int) and base_ts <= ts:
                assert key in found, f"{key.hex()} is covered from {base_ts} on, and is missing at {ts}"
                self.covered += 1
