"""Writes the base chunks of one unit of work on a Spark executor, unless they exist. A base chunk has all rows of a
span of keys as of one ts. Errors are part of the result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from tistream.errors import CommitConflict, CommitStateUnknown, NotFoundYet, RetryableError, TiStreamError
from tistream.format.backfill.base_chunk import ChunkId, write_chunk
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore
from tistream_ingest.backfill.chunk_units import Unit
from tistream_ingest.backfill.sst_files import fetch_pair, read_rows

PUT_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class BackupWork:
    """One unit of work of a backfill from a BR full backup, whose rows are as of `base_ts`."""

    tenant: TenantKey
    backfill_id: str
    base_ts: int
    unit: Unit


@dataclass(frozen=True, slots=True)
class ChunksWritten:
    """The result of writing the chunks of one unit of work: the number of chunks that this process wrote, their bytes,
    and the number of chunks that existed already.

    failed: the reason why chunks are missing; None if no chunk is missing. `retry`: whether the same work may succeed
    later.
    """

    written: int = 0
    bytes: int = 0
    there: int = 0
    failed: str | None = None
    retry: bool = False


def write_backup_chunks(objects: ObjectStore, backup: ObjectStore, work: BackupWork) -> ChunksWritten:
    """Write the chunks of one unit of a BR full backup. A chunk that exists already is not replaced."""
    missing = [
        (number, span) for number, span in work.unit.chunks if not chunk_exists(objects, _identity(work, number))
    ]
    done = ChunksWritten(there=len(work.unit.chunks) - len(missing))
    if not missing:
        return done
    try:
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


def put_once(objects: ObjectStore, key: str, body: bytes) -> bool:
    """Create an object. Returns True, or False if it exists already. If no answer comes, the same bytes are put again.
    Raises CommitStateUnknown after PUT_ATTEMPTS attempts, Unavailable."""
    for attempt in range(PUT_ATTEMPTS):
        try:
            objects.put_new(key, body)
        except CommitConflict:
            return False
        except CommitStateUnknown:
            if attempt == PUT_ATTEMPTS - 1:
                raise
        else:
            return True
    return False


def put_chunk(
    objects: ObjectStore, identity: ChunkId, span: KeySpan, base_ts: int, rows: Iterable[pa.Table], done: ChunksWritten
) -> ChunksWritten:
    """Encode a chunk, and create its object unless it exists. Returns `done` with this chunk added to the counts."""
    body = write_chunk(rows, identity, span, base_ts)
    if put_once(objects, _key(identity), body):
        return ChunksWritten(done.written + 1, done.bytes + len(body), done.there)
    return ChunksWritten(done.written, done.bytes, done.there + 1)


def chunk_exists(objects: ObjectStore, identity: ChunkId) -> bool:
    """Whether the object of a chunk exists."""
    try:
        objects.head(_key(identity))
    except NotFoundYet:
        return False
    return True


def _identity(work: BackupWork, number: int) -> ChunkId:
    return ChunkId(work.tenant, work.backfill_id, number)


def _key(identity: ChunkId) -> str:
    return layout.base_chunk(identity.tenant, identity.backfill_id, identity.number)
