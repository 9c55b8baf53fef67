"""What an executor that writes chunks returns when the object store does not answer: a result, not an exception."""

from __future__ import annotations

from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.schema.tidb.meta_change import record_span
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectInfo
from tistream_ingest.backfill.chunk_job import BackupWork, write_backup_chunks
from tistream_ingest.backfill.chunk_units import ChunkUnit
from tistream_ingest.jobs.chunk_put import ChunksWritten
from tistream_ingest.sqlread.chunk_reading import SqlWork, write_sql_chunk
from tistream_ingest.sqlread.sql_server import SqlServer

TENANT, SPAN = TenantKey("7", "acme"), record_span(9)


class Away(MemoryObjectStore):
    """Does not answer HEAD."""

    away = True

    def head(self, key: str) -> ObjectInfo:
        if self.away:
            raise Unavailable("slow down")
        return super().head(key)


def no_server() -> SqlServer:
    raise AssertionError("no table has the chunk's id")


def test_a_store_that_does_not_say_which_chunks_exist_fails_the_unit_for_now() -> None:
    objects, failed = Away(), ChunksWritten(failed="slow down", retry=True)
    backup = BackupWork(TENANT, "b1", 100, ChunkUnit(None, ((0, SPAN),)))
    sql = SqlWork(TENANT, "b2", 0, SPAN, 100, None)
    assert write_backup_chunks(objects, MemoryObjectStore(), backup) == failed
    assert write_sql_chunk(objects, no_server, sql) == failed
    objects.away = False
    for there in (0, 1):
        found = write_backup_chunks(objects, MemoryObjectStore(), backup), write_sql_chunk(objects, no_server, sql)
        assert [(one.written, one.there, one.failed) for one in found] == [(1 - there, there, None)] * 2
