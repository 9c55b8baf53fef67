"""Writes the chunks of a backfill in the calling process, in place of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tistream.storage.object_store import ObjectStore
from tistream.storage.open import open_existing
from tistream.targets.mysql_url import MySqlUrl
from tistream_ingest.backfill.chunk_job import BackupWork, write_backup_chunks
from tistream_ingest.jobs.chunk_put import ChunksWritten
from tistream_ingest.sqlread.chunk_reading import SqlWork, write_sql_chunk
from tistream_ingest.sqlread.sql_server import SqlServer


@dataclass
class LocalChunks:
    """A ChunkWriter. `jobs`: how many units each job had."""

    objects: ObjectStore
    jobs: list[int] = field(default_factory=list)

    def write(self, backup_url: str, works: Sequence[BackupWork]) -> list[ChunksWritten]:
        self.jobs.append(len(works))
        return [write_backup_chunks(self.objects, open_existing(backup_url), work) for work in works]

    def write_sql(self, server: MySqlUrl, works: Sequence[SqlWork]) -> list[ChunksWritten]:
        self.jobs.append(len(works))
        return [write_sql_chunk(self.objects, lambda: SqlServer(server), work) for work in works]
