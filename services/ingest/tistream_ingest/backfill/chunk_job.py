"""Writes the base chunks of one unit of work on a Spark executor, unless they exist. A base chunk has all rows of a
span of keys as of one ts. Errors are part of the result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from tistream.errors import CommitStateUnknown, NotFoundYet, RetryableError, TiStreamError
from tistream.format.backfill.base_chunk import ChunkId
from tistream.model.ids import TenantKey
from tistream.storage.object_store import ObjectStore
from tistream_ingest.backfill.chunk_units import ChunkUnit
from tistream_ingest.backfill.sst_files import fetch_pair, read_rows
from tistream_ingest.jobs.chunk_put import ChunksWritten, chunk_exists, put_chunk


@dataclass(frozen=True, slots=True)
class BackupWork:
    """One unit of work of a backfill from a BR full backup, whose rows are as of `base_ts`."""

    tenant: TenantKey
    backfill_id: str
    base_ts: int
    unit: ChunkUnit


def write_backup_chunks(objects: ObjectStore, backup: ObjectStore, work: BackupWork) -> ChunksWritten:
    """Write the chunks of one unit of a BR full backup. A chunk that exists already is not replaced. A TiStreamError is
    not raised, but is part of the result."""
    done = ChunksWritten()
    try:
        missing = [
            (number, span) for number, span in work.unit.chunks if not chunk_exists(objects, _identity(work, number))
        ]
        done = ChunksWritten(there=len(work.unit.chunks) - len(missing))
        if not missing:
            return done
        with TemporaryDirectory(prefix="tistream-sst-") as folder:
            pair = work.unit.pair
            local = None if pair is None else fetch_pair(backup, pair, Path(folder))
            for number, span in missing:
                rows: Iterable[pa.Table] = () if local is None else read_rows(local, span, work.base_ts)
                done = put_chunk(objects, _identity(work, number), span, work.base_ts, rows, done)
    except TiStreamError as error:
        retry = isinstance(error, RetryableError | CommitStateUnknown) and not isinstance(error, NotFoundYet)
        return ChunksWritten(done.written, done.bytes, done.there, str(error), retry)
    return done


def _identity(work: BackupWork, number: int) -> ChunkId:
    return ChunkId(work.tenant, work.backfill_id, number)
