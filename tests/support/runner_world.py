"""A backfill's runner over a golden set: it writes chunks, and real sorter tasks take them."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from support.cut_set import CutSet, commit_timestamps, cut
from support.golden_tidb import GoldenTidb
from support.sorter_world import SorterWorld
from tistream.clock import ManualClock
from tistream.model.base_cover import Cover
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.pool.base_covers import cover_of
from tistream.schema.history import History
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.measured import MeasuredObjectStore
from tistream.targets.mysql_url import MySqlUrl
from tistream.wire.bulk.backfills import BackfillRow, BackfillSource, EndBackfill
from tistream_ingest.backfill.backfill_runner import BackfillRunner
from tistream_ingest.backfill.chunk_job import BackupWork, write_backup_chunks
from tistream_ingest.jobs.chunk_put import ChunksWritten
from tistream_ingest.metrics import IngestMetrics
from tistream_ingest.sqlread.chunk_reading import SqlWork, write_sql_chunk
from tistream_ingest.sqlread.dsn_files import DsnFiles
from tistream_ingest.sqlread.sql_backfills import SqlBackfills
from tistream_ingest.sqlread.sql_server import SqlServer
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.node.base_converter import BaseConverter, ListedBackfill

T0_AT = 900
DAY_MS = 86_400_000


@dataclass(frozen=True)
class Routed:
    task_id: int
    span: KeySpan
    parents: Sequence[int] = ()


@dataclass
class Book:
    """The meta server's rows, in memory."""

    rows: list[BackfillRow] = field(default_factory=list)
    ended: dict[str, EndBackfill] = field(default_factory=dict)

    def running(self) -> list[BackfillRow]:
        return [row for row in self.rows if row.backfill_id not in self.ended]

    def end(self, row: BackfillRow, end: EndBackfill) -> None:
        assert row.backfill_id not in self.ended
        self.ended[row.backfill_id] = end


class RunnerWorld:
    """known_ts: what the schema registry has reached. tidb: the server of backfills by SQL. works: what it
    was asked for."""

    chunk_rows, page_rows = 12, 5
    known_ts: int
    tidb: GoldenTidb | None
    works: list[SqlWork]

    def __init__(self, tasks: int = 2, objects: MemoryObjectStore | None = None) -> None:
        self.made: CutSet = cut("everything", commit_timestamps("everything")[T0_AT])
        self.tenant = self.made.set_.tenant
        rng = random.Random(tasks)
        keys = self.made.rows["key"].unique().sort().to_list()
        self.world = SorterWorld(self.made.set_, sorted(rng.sample(keys[1:], tasks - 1)), objects=objects)
        self.objects = self.world.objects
        self.backup = MemoryObjectStore()
        for name, body in self.made.backup(1).items():
            self.backup.put(name, body)
        self.book = Book()
        self.clock = ManualClock(0)
        self.known_ts, self.tidb, self.works = self.made.t0, None, []
        self.runner = self.new_runner()
        metrics, nonces = SorterMetrics(CollectorRegistry()), random.Random(3)
        new_nonce = lambda: f"{nonces.getrandbits(64):016x}"  # noqa: E731
        self.converter = BaseConverter(
            MeasuredObjectStore(self.objects), self.world.runner, self.world.clock, new_nonce, metrics
        )

    def new_runner(self) -> BackfillRunner:
        return BackfillRunner(
            self.objects,
            self.book,
            self,
            lambda _: self.backup,
            self.cover,
            SqlBackfills(lambda _: self.history(), self.server, chunk_rows=self.chunk_rows),
            IngestMetrics(CollectorRegistry()),
            self.clock,
            DAY_MS,
        )

    def history(self) -> History:
        """The schema as a registry has it that has reached `known_ts`."""
        found = copy.copy(self.made.history)
        found.resolved_ts = self.known_ts
        return found

    def server(self, dsn_file: str) -> MySqlUrl:
        """What DSN files name."""
        if self.tidb is None:
            return DsnFiles(None).server(dsn_file)
        return self.tidb.url

    def write_sql(self, server: MySqlUrl, works: Sequence[SqlWork]) -> list[ChunksWritten]:
        self.works += works
        return [write_sql_chunk(self.objects, lambda: SqlServer(server), work, self.page_rows) for work in works]

    def write(self, backup_url: str, works: Sequence[BackupWork]) -> list[ChunksWritten]:
        return [write_backup_chunks(self.objects, self.backup, work) for work in works]

    def cover(self, tenant: TenantKey) -> Cover:
        tasks = [Routed(number, span) for number, span in enumerate(self.world.spans, 1)]
        return cover_of(self.objects, tenant, tasks)

    def start(
        self, backfill_id: str, *tables: str, kind: str = "br-full", snapshot_ts: int | None = None, threads: int = 8
    ) -> None:
        url = "s3://backups/full" if kind == "br-full" else None
        source = BackfillSource(kind=kind, url=url, dsn_file="upstream" if kind == "sql" else None, threads=threads)  # type: ignore[arg-type]
        self.book.rows.append(
            BackfillRow(
                cluster_id=self.tenant.cluster_id, tenant_id=self.tenant.tenant_id, backfill_id=backfill_id,
                source=source, tables=list(tables), state="running", created_ms=0,
                snapshot_ts=self.made.t0 if snapshot_ts is None else snapshot_ts,
            )
        )  # fmt: skip

    def run(self, turns: int = 60) -> None:
        for _ in range(turns):
            self.runner.step()
            self.converter.set_backfills([ListedBackfill(self.tenant, row.backfill_id) for row in self.book.running()])
            self.world.tick()
            self.converter.convert(self.world.node.tasks())
            self.world.tick()
            if not self.book.running():
                return
