"""A golden set cut in two at a ts T0: the rows and the schema as of any ts, and the log from T0 on."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
import polars as pl
import pyarrow as pa

from support import golden
from support.backup_files import Backup
from support.golden import GoldenSet
from support.pull_world import committed
from tistream.format.backfill.base_chunk import SCHEMA
from tistream.model.span import KeySpan
from tistream.schema.history import History
from tistream.schema.records import DatabaseChange, TableChange
from tistream.schema.tidb.meta_change import MetaDecoder, MetaRow
from tistream.schema.tidb.snapshot import parse_snapshot

PUT = 1


@dataclass(frozen=True, slots=True)
class CutSet:
    """`set_` is the golden set as a tenant that begins at `set_.snapshot_ts` = T0; `rows` are all committed rows of the
    whole set, `history` is its whole history."""

    set_: GoldenSet
    rows: pl.DataFrame
    history: History

    @property
    def t0(self) -> int:
        return self.set_.snapshot_ts

    def state(self, ts: int) -> pl.DataFrame:
        """The newest version of each record key at or below `ts`, without deleted ones, ordered by key."""
        return _state(self.set_.name, ts)

    def chunk_rows(self, span: KeySpan, ts: int, *, with_commit_ts: bool = True) -> pa.Table:
        """The rows of a chunk of `span` as of `ts`."""
        found = self.state(ts).filter(pl.col("key") >= span.start)
        if span.end:
            found = found.filter(pl.col("key") < span.end)
        commit_ts = pl.col("commit_ts") if with_commit_ts else pl.lit(None, pl.Int64).alias("commit_ts")
        return found.select("key", "value", commit_ts).to_arrow().cast(SCHEMA)

    def physical_ids(self, ts: int) -> list[int]:
        """The physical ids of all visible base tables at `ts`."""
        return sorted({one for version in self.tables(ts) for one in version.head.physical_ids})

    def user_ids(self) -> list[int]:
        """The physical ids with rows at T0 that were ever visible. The rows of system schemas that were older than the
        whole set are not known."""
        low, high = self.history.snapshot_ts, self.history.resolved_ts
        return [
            one
            for one in sorted(self.state(self.t0)["table_id"].unique().to_list())
            if any(version is not None for _, _, version in self.history.versions_of(one, low, high))
        ]

    def tables(self, ts: int) -> list[Any]:
        """The visible base tables at `ts`."""
        names = self.history.databases(ts)
        found = [version for name in names for version in self.history.visible_tables(ts, name)]
        return [version for version in found if version.head.kind == "table"]

    def backup(self, seed: int, *, version: int = 1, cuts: int = 3, cluster_id: int = 7) -> dict[str, bytes]:
        """The bucket of a BR full backup at T0: the rows of each physical id in up to `cuts` regions."""
        rng = random.Random(seed)
        backup = Backup(self.t0, cluster_id, version)
        databases, tables = _schema(self.set_.name, self.t0)
        for database_id, info in databases.items():
            own = [table for (database, _), table in tables.items() if database == database_id]
            for table in own or [None]:
                backup.schema(info, table)
        state = self.state(self.t0)
        for table_id in sorted(state["table_id"].unique()):
            part = state.filter(pl.col("table_id") == table_id)
            bounds = sorted(rng.sample(range(1, max(2, part.height)), min(rng.randint(0, cuts - 1), part.height - 1)))
            prefix = part["key"][0][:9]
            edges = [prefix + b"_r", *(part["key"][at] for at in bounds), prefix + b"_s"]
            for number, (start, end) in enumerate(itertools.pairwise(edges)):
                mine = part.filter((pl.col("key") >= start) & (pl.col("key") < end))
                entries = mine.select("key", "start_ts", "commit_ts", "value").iter_rows()
                backup.region(f"1/{table_id}_{number}_ab_1", start, end, entries)
        return backup.finish()


def cut(name: str, t0: int) -> CutSet:
    """The set as a tenant whose snapshot is at `t0`."""
    loaded = golden.load(name)
    rows, history = committed(name)
    snap = replace(loaded.schema_snap, data=schema_snap_at(name, t0))
    return CutSet(replace(loaded, snapshot_ts=t0, schema_snap=snap), rows, history)


@functools.cache
def _records(name: str) -> pl.DataFrame:
    """The versions of all record keys, ordered by key and ts."""
    record = pl.col("key").bin.slice(9, 2) == b"_r"
    return committed(name)[0].filter((pl.col("table_id") > 0) & record).sort("key", "commit_ts", "start_ts")


@functools.lru_cache(64)  # tests ask for it table by table
def _state(name: str, ts: int) -> pl.DataFrame:
    newest = _records(name).filter(pl.col("commit_ts") <= ts).group_by("key", maintain_order=True).last()
    return newest.filter(pl.col("op") == PUT).sort("key")


def commit_timestamps(name: str) -> Sequence[int]:
    """Every commit_ts of the set's rows, ascending."""
    return committed(name)[0]["commit_ts"].unique().sort().to_list()


def schema_snap_at(name: str, ts: int) -> bytes:
    """The schema_snap of a golden set as of a later ts."""
    databases, tables = _schema(name, ts)
    listed = [
        {"db_info": info, "tables": [table for (database, _), table in tables.items() if database == database_id]}
        for database_id, info in databases.items()
    ]
    return orjson.dumps({"version": 1, "snapshot_ts": ts, "databases": listed})


def _schema(name: str, ts: int) -> tuple[dict[int, Any], dict[tuple[int, int], Any]]:
    """The DBInfo of each database, and the TableInfo of each table by (database, table), as of `ts`."""
    loaded, rows = golden.load(name), committed(name)[0]
    snapshot, decoder = parse_snapshot(loaded.schema_snap.key, loaded.schema_snap.data), MetaDecoder()
    meta = rows.filter((pl.col("table_id") == 0) & (pl.col("commit_ts") <= ts)).sort("commit_ts", "start_ts", "key")
    records = [*snapshot.records]
    for row in meta.iter_rows(named=True):
        value = row["value"] if row["op"] == PUT else None
        found = decoder.decode(MetaRow(0, row["commit_ts"], row["start_ts"], row["key"], value, row["old_value"]))
        records += [found] if found is not None else []
    databases: dict[int, Any] = {}
    tables: dict[tuple[int, int], Any] = {}
    for record in records:
        change = record.change
        if isinstance(change, DatabaseChange):
            databases.pop(change.database_id, None)
            if change.info is not None:
                databases[change.database_id] = change.info
        elif isinstance(change, TableChange):
            tables.pop((change.database_id, change.table_id), None)
            if change.text is not None:
                tables[change.database_id, change.table_id] = change.text.info()
    return databases, tables
