"""Versions of keys in a pool in memory, beside a dictionary that knows them: shards with segments and runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from tistream.format.run import SCHEMA, RunRef
from tistream.format.segment import OP_DELETE, OP_PUT, SegmentRef
from tistream.format.segment import SCHEMA as SEGMENT_SCHEMA
from tistream.model.base_cover import Base
from tistream.model.span import KeySpan
from tistream.pool import run_writer
from tistream.pool.versions import plan
from tistream.pool.versions.plan import IndexShard
from tistream.pool.writer import write_segment
from tistream.storage.backends.memory import MemoryObjectStore

Row = dict[str, Any]


def int_key(table_id: int, handle: int) -> bytes:
    """A record key with an integer handle."""
    return plan.record_prefix(table_id) + (handle + (1 << 63)).to_bytes(8, "big")


def written_run(
    objects: MemoryObjectStore, name: str, rows: Sequence[Row], low_ts: int | None, high_ts: int, group_rows: int = 7
) -> RunRef:
    """A run object of these rows (run.SCHEMA, in any order)."""
    ordered = sorted(rows, key=lambda row: (row["table_id"], row["key"], -row["commit_ts"], row["start_ts"]))
    with patch.object(run_writer, "GROUP_ROWS", group_rows):
        body, ref = run_writer.write_run(pa.Table.from_pylist(ordered, SCHEMA), name, low_ts, high_ts)
    objects.put(name, body)
    return ref


@dataclass
class VersionsWorld:
    """Committed versions, and what a pool of them must answer."""

    objects: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    rows: list[Row] = field(default_factory=list)
    shards: list[IndexShard] = field(default_factory=list)
    base_ts: int = 0  # at and below it, older versions and deletes may be gone
    unread_ts: int = 0  # changes at and below it have no old values
    _names: int = 0

    def name(self, what: str) -> str:
        self._names += 1
        return f"committed/00/cluster-7/Tenant-acme/task-1/{what}/{self._names:06d}.parquet"

    def at(self, ts: int, ids: Sequence[int], low: int = 0) -> dict[bytes, Row]:
        """The newest version in (low, ts] of every key of these tables, deletes included."""
        found: dict[bytes, Row] = {}
        for row in sorted(self.rows, key=lambda row: row["commit_ts"]):
            if low < row["commit_ts"] <= ts and row["table_id"] in ids:
                found[row["key"]] = row
        return found

    def old_value(self, row: Row) -> bytes | None:
        """The value of the row's key just below its commit_ts."""
        before = [one for one in self.rows if one["key"] == row["key"] and one["commit_ts"] < row["commit_ts"]]
        return max(before, key=lambda one: one["commit_ts"])["value"] if before else None

    def segment(self, rows: Sequence[Row]) -> SegmentRef:
        """A segment of these rows, with the values before them above `unread_ts`."""
        ordered = sorted(rows, key=lambda row: (row["table_id"], row["commit_ts"], row["start_ts"], row["key"]))
        valued = [{"old_value": self.old_value(row) if row["commit_ts"] > self.unread_ts else None, **row}
                  for row in ordered]  # fmt: skip
        table = pa.Table.from_pylist(valued, SEGMENT_SCHEMA)
        key = self.name("segment")
        body, ref = write_segment(table, key)
        self.objects.put(key, body)
        return ref

    def shard(self, span: KeySpan, rng: random.Random, *, indexed: bool) -> IndexShard:
        """A shard of the rows with keys in `span`: runs of random windows up to a random ts, and segments above it.
        Without `indexed` there are no runs."""
        mine = [row for row in self.rows if row["key"] in span]
        stamps = sorted({row["commit_ts"] for row in mine})
        cuts = sorted(rng.sample(stamps, min(len(stamps), rng.randint(0, 5))))
        runs: list[RunRef] = []
        if indexed and cuts:
            base_ts = cuts[0] if rng.random() < 0.5 else None
            low = 0
            if base_ts is not None:
                newest = {row["key"]: row for row in sorted(mine, key=lambda row: row["commit_ts"])
                          if row["commit_ts"] <= base_ts}  # fmt: skip
                base = [row for row in newest.values() if row["op"] == OP_PUT]
                runs += self._run(base, None, base_ts, rng)
                low = base_ts
                self.base_ts = max(self.base_ts, base_ts)
            for high in cuts:
                some = [row for row in mine if low < row["commit_ts"] <= high]
                if low < high:
                    runs += self._run(some, low, high, rng)
                    low = high
        indexed_ts = cuts[-1] if indexed and cuts else 0
        logged_ts = rng.choice([None, 0, *stamps])
        dropped_ts = indexed_ts if logged_ts is None else min(indexed_ts, logged_ts)
        segments = []
        bounds = [0, *sorted(rng.sample(stamps, min(len(stamps), rng.randint(0, 6)))), 1 << 62]
        for low, high in pairwise(bounds):
            some = [row for row in mine if low < row["commit_ts"] <= high]
            if some and high > dropped_ts:
                segments.append(self.segment(some))
        cover = (Base(span, self.unread_ts),) if self.unread_ts else ()
        return IndexShard(span, tuple(segments), tuple(runs), indexed_ts, cover=cover, logged_ts=logged_ts)

    def _run(self, rows: Sequence[Row], low: int | None, high: int, rng: random.Random) -> list[RunRef]:
        """One run, cut into objects between random keys."""
        keys = sorted({row["key"] for row in rows})
        cuts = [b"", *sorted(rng.sample(keys, min(len(keys), rng.randint(0, 2)))), b"\xff"]
        parts = ([row for row in rows if start <= row["key"] < end] for start, end in pairwise(cuts))
        return [
            written_run(self.objects, self.name("run"), part, low, high, rng.randint(1, 9)) for part in parts if part
        ]


def random_rows(rng: random.Random, tables: int, keys: int, commits: int, *, common: bool) -> list[Row]:
    """Transactions of puts and deletes; each key at most once in each."""
    rows: list[Row] = []
    ts = 10
    for _ in range(commits):
        start_ts, ts = ts, ts + rng.randint(1, 5)
        for place in rng.sample(range(tables * keys), rng.randint(1, min(6, tables * keys))):
            table_id, handle = 100 + place // keys, place % keys - keys // 2
            key = int_key(table_id, handle)
            if common:
                key += b"\0" * (handle % 3) + b"\xf7" * (handle % 2)
            put = rng.random() < 0.7
            rows.append(
                {
                    "table_id": table_id, "key": key, "commit_ts": ts, "start_ts": start_ts,
                    "op": OP_PUT if put else OP_DELETE,
                    "value": f"{table_id}/{handle}@{ts}".encode() if put else None,
                    "txn_source": rng.choice([None, 7]),
                }
            )  # fmt: skip
        ts += 1
    return rows
