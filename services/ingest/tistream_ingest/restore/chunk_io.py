"""The work items of a restore, which executors run. One counts the rows of a part of a table and cuts it into chunks;
one reads a chunk's rows as of a ts, fingerprints them and writes them into the target; one reads a part of the target
back and fingerprints it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa

from tistream.decode.kernels.arrow_buffers import one_array
from tistream.decode.rows import decode_rows
from tistream.errors import NotFoundYet, RetryableError, TiStreamError, Undecodable
from tistream.model.ids import TenantKey
from tistream.model.ts import Window
from tistream.pool.versions.merge import key_array
from tistream.pool.versions.plan import IndexShard, TableRange
from tistream.pool.versions.reader import StoreReader
from tistream.pool.versions.scan import measure_range, read_range
from tistream.restore.fingerprint import Fingerprint, of_rows
from tistream.schema.tidb.table import parse_table
from tistream.storage.object_store import ObjectStore
from tistream.storage.open import open_objects
from tistream.targets.mysql import MySqlTarget, TargetFailed
from tistream.targets.mysql_url import MySqlUrl
from tistream.targets.restored_table import TableExists, TargetRefused
from tistream_ingest.restore import restore_plan
from tistream_ingest.restore.chunk_target import ChunkTarget, NumberedTable, TargetSpec
from tistream_ingest.restore.mysql_chunks import MySqlChunks
from tistream_ingest.restore.object_targets import ParquetObjects, SqlObjects
from tistream_ingest.restore.restore_plan import Chunk


@dataclass(frozen=True, slots=True)
class ReadWork:
    """The rows that a work item reads: those of a tenant's key range as of `ts`."""

    tenant: TenantKey
    ts: int
    shards: tuple[IndexShard, ...]
    wanted: TableRange


@dataclass(frozen=True, slots=True)
class CountWork:
    """A work item that counts the rows of a part of a table, and cuts it into chunks."""

    read: ReadWork
    rows_max: int

    def run(self, objects: ObjectStore) -> list[tuple[bytes, int]]:
        """Read the keys of the part. Returns the last key and the number of rows of each of its chunks. Raises
        NotFoundYet, Unavailable, CorruptObject."""
        read, store = self.read, cast(Any, objects)  # to mypy no protocol is hashable
        sizes = measure_range(read.shards, _reader(store), Window(0, read.ts), read.wanted)
        return list(restore_plan.cuts(sizes, self.rows_max))


@dataclass(frozen=True, slots=True)
class ChunkWork:
    """A work item that reads a chunk, fingerprints its rows and writes them into a target. If `write` is false, it does
    not write them."""

    read: ReadWork
    one: NumberedTable
    chunk: Chunk
    spec: TargetSpec
    write: bool

    def run(self, objects: ObjectStore) -> Fingerprint:
        """Read the chunk's rows, and write them unless `write` is false. Returns the fingerprint of the rows. Raises
        Undecodable, TargetFailed, TargetRefused, NotFoundYet, Unavailable, CorruptObject."""
        table, batches = parse_table(self.one.info), []
        total = Fingerprint()
        for versions in _versions(objects, self.read):
            batch = self._decoded(table, versions)
            total += of_rows(batch, self.one.table.columns, self.spec.compared)
            batches.append(batch)
        if self.write and batches:
            with opened(self.spec) as target:
                target.write(self.one, self.chunk.number, batches, total.rows)
        return total

    def _decoded(self, table: Any, versions: pa.Table) -> pa.RecordBatch:
        columns = self.one.table.columns
        found = decode_rows(table, columns, key_array(versions), one_array(versions.column("value")))
        errors = dict(found.errors)
        if errors:
            at = min(errors)
            name, key = ".".join(self.one.table.source), versions.column("key")[at].as_py().hex()
            raise Undecodable(
                f"table {name}, key {key}: {errors[at]}", {"table": name, "key": key, "reason": str(errors[at])}
            )
        arrays = [found.batch.column(at) for at in range(len(columns))]
        return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


@dataclass(frozen=True, slots=True)
class ReadBackWork:
    """A work item that reads a part of a target back, to compare it with the rows as of the restore's ts."""

    one: NumberedTable
    part: int
    spec: TargetSpec

    def run(self, objects: ObjectStore) -> Fingerprint:  # noqa: ARG002 - as the others
        """Read the part back. Returns the fingerprint of the rows that the target has. Raises TargetFailed,
        TargetRefused, NotFoundYet, Unavailable."""
        with opened(self.spec) as target:
            return target.fingerprint(self.one, self.part)


@contextmanager
def opened(spec: TargetSpec) -> Iterator[ChunkTarget]:
    """Open a target for a `with` block. Raises TargetFailed, Unavailable."""
    if isinstance(spec.place, MySqlUrl):
        url = spec.place
        with MySqlTarget(MySqlUrl(url.host, url.port, url.user, url.password, None, url.options)) as target:
            yield MySqlChunks(target)
        return
    objects = open_objects(spec.place)
    yield (ParquetObjects if spec.kind == "parquet" else SqlObjects)(objects, spec.dialect)


def _versions(objects: ObjectStore, work: ReadWork) -> Iterator[pa.Table]:
    store: Any = objects  # to mypy no protocol is hashable
    return read_range(work.shards, _reader(store), Window(0, work.ts), [work.wanted], columns=("key", "value"))


@lru_cache(maxsize=8)
def _reader(objects: ObjectStore) -> StoreReader:
    """The reader of the pool. Each worker process has one, because the chunks of a table are often in one object, whose
    footer the reader caches."""
    return StoreReader(objects)


Work = CountWork | ChunkWork | ReadBackWork


@dataclass(frozen=True, slots=True)
class WorkFailed:
    """The reason why a work item failed. kind: `missing` (an object of the pool, or a file of the target that was read
    back, does not exist any more, so the read must be planned again), `target` or `unavailable` (a retry may succeed),
    `refused` (permanent)."""

    kind: str
    reason: str


def guarded(objects: ObjectStore, work: Work) -> Any:
    """Run a work item and return its result. An error of the pool or of the target is returned as a WorkFailed, because
    an error that is raised would lose its type in Spark. Other errors are raised."""
    try:
        return work.run(objects)
    except NotFoundYet as error:
        return WorkFailed("missing", str(error))
    except RetryableError as error:
        return WorkFailed("unavailable", str(error))
    except TargetFailed as error:
        return WorkFailed("target", str(error))
    except (TiStreamError, TargetRefused, TableExists) as error:
        return WorkFailed("refused", str(error))
