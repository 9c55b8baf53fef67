"""One tenant with a log backup made by hand, and the adapter that reads it, in one process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from support.log_bytes import PUT, Log, record, row_key
from tistream.clock import ManualClock
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.change_reader import open_change_file, read_changes, read_watermarks
from tistream.storage.object_store import ObjectStore
from tistream_ingest.jobs.local import LocalRunner
from tistream_ingest.jobs.work import PoolShards
from tistream_ingest.plan.rules import SourceRules
from tistream_ingest.source.bucket import Bucket
from tistream_ingest.source.source import SourceIdentity, SourceRunner

TENANT = TenantKey("7", "acme")
S = 1_000  # snapshot_ts
LONG = b"v" * 300


class FilesAsPool:
    """A pool that has what was pushed, at once: the newest version of keys from the change files themselves."""

    def __init__(self, objects: MemoryObjectStore) -> None:
        self._objects = objects
        self.base: dict[bytes, bytes] = {}  # rows of a backfill, by key

    def rows(self) -> list[dict[str, Any]]:
        found = []
        for info in self._objects.list_after(layout.change_file_prefix(TENANT, 0)):
            file = open_change_file(self._objects, info.key)
            found += read_changes(self._objects, file, range(len(file.change_groups))).to_pylist()
        return found

    def at(self, keys: pa.Array, ts: int) -> pa.Array:
        newest: dict[bytes, bytes | None] = dict(self.base)
        for row in sorted(self.rows(), key=lambda row: row["commit_ts"]):
            if row["commit_ts"] <= ts:
                newest[row["key"]] = row["value"]
        return pa.array([newest.get(key) for key in keys.to_pylist()], pa.binary())

    def commits(self, keys: pa.Array, commit_ts: pa.Array) -> pa.Array:
        there = {(row["key"], row["commit_ts"]) for row in self.rows()}
        return pa.array(
            [pair in there for pair in zip(keys.to_pylist(), commit_ts.to_pylist(), strict=True)], pa.bool_()
        )


@dataclass
class World:
    """One tenant, one log."""

    rules: SourceRules = field(default_factory=SourceRules)
    log: Log = field(default_factory=Log)
    objects: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    reached: int = 1 << 60  # where the pool has come to
    keep_index: bool = False

    def __post_init__(self) -> None:
        self.log.begin(start_version=S)
        self.pool = FilesAsPool(self.objects)
        self.source = self.adapter()

    def adapter(self, objects: ObjectStore | None = None) -> SourceRunner:
        """A process with nothing in memory."""
        runner = LocalRunner(lambda url: self.log.objects, self.objects, lambda *_: self.pool)
        identity = SourceIdentity("log-1", TENANT, "memory:", S, self.keep_index)
        target = objects or self.objects
        return SourceRunner(
            identity, Bucket(self.log.objects), target, self, runner, ManualClock(), lambda *_: None, self.rules
        )

    def reached_ts(self) -> int:
        return self.reached

    def current(self) -> PoolShards:
        return PoolShards((), S)

    def found(self) -> list[tuple[Any, ...]]:
        """What was released: key, commit_ts, op, value, old_value."""
        names = ("key", "commit_ts", "op_type", "value", "old_value")
        return [tuple(row[name] for name in names) for row in self.pool.rows()]

    def watermarks(self) -> list[int]:
        out: list[int] = []
        for info in self.objects.list_after(layout.change_file_prefix(TENANT, 0)):
            file = open_change_file(self.objects, info.key)
            out += read_watermarks(self.objects, file)["resolved_ts"].to_pylist() if file.watermark_groups else []
        return out


def put(
    handle: int, commit_ts: int, value: bytes | None = b"v", *, start_ts: int | None = None, more: bytes = b""
) -> tuple[bytes, int, bytes]:
    """The commit of a row; `value` None: it is in `default`."""
    return row_key(5, handle), commit_ts, record(PUT, commit_ts - 1 if start_ts is None else start_ts, value, more=more)
