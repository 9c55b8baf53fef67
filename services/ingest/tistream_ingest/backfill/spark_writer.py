"""Writes base chunks of backfills as Spark jobs: one Spark task for each pair of SST files, or for each chunk that is
read by SQL. No row goes to the driver."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from tistream.storage.backends.tenant_keys import KeyIds, TenantKeys, keys_of
from tistream.storage.object_store import ObjectStore
from tistream.storage.open import open_existing, open_objects
from tistream.targets.mysql_url import MySqlUrl
from tistream_ingest.backfill.chunk_job import BackupWork, write_backup_chunks
from tistream_ingest.jobs.chunk_put import ChunksWritten
from tistream_ingest.sqlread.chunk_reading import SqlWork, write_sql_chunk
from tistream_ingest.sqlread.sql_server import SqlServer

BACKFILL_POOL = "backfill"  # a pool of Spark's scheduler: releases of log backups get their share beside it


class SparkChunkWriter:
    """A ChunkWriter that uses Spark. `context`: the SparkContext, which is created for the first job. `keys`: the ids
    of the tenants' encryption keys, which are sent with each job."""

    def __init__(self, context: Callable[[], Any], objects_url: str, keys: TenantKeys) -> None:
        self._context, self._url, self._keys = context, objects_url, keys

    def write(self, backup_url: str, works: Sequence[BackupWork]) -> list[ChunksWritten]:
        """Write the chunks of these units as one Spark job. Raises Spark's exception if a task died."""
        url, keys = self._url, self._keys.ids_of({work.tenant for work in works})

        def given(bundle: Iterable[bytes]) -> Iterator[ChunksWritten]:
            for part in bundle:
                yield write_chunks(url, keys, backup_url, pickle.loads(part))

        return self._run(works, given)

    def write_sql(self, server: MySqlUrl, works: Sequence[SqlWork]) -> list[ChunksWritten]:
        """Read these chunks by SQL and write them, as one Spark job with a connection for each chunk. Raises Spark's
        exception if a task died."""
        url, keys = self._url, self._keys.ids_of({work.tenant for work in works})

        def given(bundle: Iterable[bytes]) -> Iterator[ChunksWritten]:
            for part in bundle:
                yield write_by_sql(url, keys, server, pickle.loads(part))

        return self._run(works, given)

    def _run(
        self, works: Sequence[object], given: Callable[[Iterable[bytes]], Iterator[ChunksWritten]]
    ) -> list[ChunksWritten]:
        packed = [pickle.dumps(work, pickle.HIGHEST_PROTOCOL) for work in works]
        context = self._context()
        context.setLocalProperty("spark.scheduler.pool", BACKFILL_POOL)
        return list(context.runJob(context.parallelize(packed, len(packed)), given))


def write_chunks(objects_url: str, keys: KeyIds, backup_url: str, work: BackupWork) -> ChunksWritten:
    """Body of a Spark task: write the chunks of one unit of a backup. Objects are encrypted with `keys`."""
    objects = _objects(objects_url)
    keys_of(objects).update(keys)
    return write_backup_chunks(objects, _backup(backup_url), work)


def write_by_sql(objects_url: str, keys: KeyIds, server: MySqlUrl, work: SqlWork) -> ChunksWritten:
    """Body of a Spark task: read one chunk by SQL and write it. Objects are encrypted with `keys`."""
    objects = _objects(objects_url)
    keys_of(objects).update(keys)
    return write_sql_chunk(objects, lambda: SqlServer(server), work)


@lru_cache(maxsize=8)
def _objects(url: str) -> ObjectStore:
    """The platform's object store. Each worker process opens it once."""
    return open_objects(url)


@lru_cache(maxsize=8)
def _backup(url: str) -> ObjectStore:
    """The object store of a backup, which is only read. Each worker process opens it once."""
    return open_existing(url)
