"""Writes one chunk of a backfill into the object store, unless it exists. Executors that read a backup and those that
read by SQL use it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from tistream.errors import CommitConflict, CommitStateUnknown, NotFoundYet
from tistream.format.backfill.base_chunk import ChunkId, write_chunk
from tistream.model.span import KeySpan
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore

PUT_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class ChunksWritten:
    """The result of writing the chunks of one unit of work. `written`: the number of chunks that this process wrote.
    `bytes`: their bytes. `there`: the number of chunks that existed already. `failed`: the reason why chunks are
    missing; None if no chunk is missing. `retry`: whether the same work may succeed later."""

    written: int = 0
    bytes: int = 0
    there: int = 0
    failed: str | None = None
    retry: bool = False


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
    """Encode a chunk, and create its object unless it exists. Returns `done` with this chunk added to the counts.
    Raises the errors of `put_once`, and of reading `rows`."""
    body = write_chunk(rows, identity, span, base_ts)
    if put_once(objects, _key(identity), body):
        return replace(done, written=done.written + 1, bytes=done.bytes + len(body))
    return replace(done, there=done.there + 1)


def chunk_exists(objects: ObjectStore, identity: ChunkId) -> bool:
    """Whether the object of a chunk exists. Raises Unavailable."""
    try:
        objects.head(_key(identity))
    except NotFoundYet:
        return False
    return True


def _key(identity: ChunkId) -> str:
    return layout.base_chunk(identity.tenant, identity.backfill_id, identity.number)
