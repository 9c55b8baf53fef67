"""Writes the chunks of a BR full backup as Spark jobs: one Spark task for each pair of SST files."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from tistream.storage.backends.tenant_keys import KeyIds, TenantKeys, keys_of
from tistream.storage.object_store import ObjectStore
from tistream.storage.open import open_objects
from tistream_ingest.backfill.chunk_job import BackupWork, ChunksWritten, write_backup_chunks


class SparkChunkWriter:
    """A ChunkWriter. `context`: the SparkContext. `keys`: the encryption key ids of tenants, sent with each job."""

    def __init__(self, context: Any, objects_url: str, keys: TenantKeys) -> None:
        self._context, self._url, self._keys = context, objects_url, keys

    def write(self, backup_url: str, works: Sequence[BackupWork]) -> list[ChunksWritten]:
        """One job. Raises Spark's exception if a task died."""
        url, keys = self._url, self._keys.told({work.tenant for work in works})

        def given(bundle: Iterable[bytes]) -> Iterator[ChunksWritten]:
            for part in bundle:
                yield write_chunks(url, keys, backup_url, pickle.loads(part))

        packed = [pickle.dumps(work, pickle.HIGHEST_PROTOCOL) for work in works]
        return list(self._context.runJob(self._context.parallelize(packed, len(packed)), given))


def write_chunks(objects_url: str, keys: KeyIds, backup_url: str, work: BackupWork) -> ChunksWritten:
    """The work of one Spark task. Objects are encrypted with `keys`."""
    objects = _opened(objects_url)
    keys_of(objects).tell(keys)
    return write_backup_chunks(objects, _opened(backup_url), work)


@lru_cache(maxsize=8)
def _opened(url: str) -> ObjectStore:
    """One client for each store and worker process."""
    return open_objects(url)
