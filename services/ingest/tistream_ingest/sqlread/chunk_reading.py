"""The work of an executor in a backfill by SQL: read one chunk of a table as of one ts, encode its rows as TiKV does,
and write it, unless it exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.encode.cells import NotEncodable
from tistream.encode.rows import encode_keys, encode_values
from tistream.encode.table_encoding import KeyForm, changing_column
from tistream.errors import CommitStateUnknown, InvalidRequest, RetryableError, TiStreamError, Unavailable
from tistream.format.backfill.base_chunk import SCHEMA, ChunkId
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.storage.object_store import ObjectStore
from tistream_ingest.jobs.chunk_put import ChunksWritten, chunk_exists, put_chunk
from tistream_ingest.sqlread import statements as sql
from tistream_ingest.sqlread.read_table import ReadTable
from tistream_ingest.sqlread.sql_server import Columns, SqlServer

PAGE_ROWS = 16_384
COMMIT_TS = "_tidb_commit_ts"


@dataclass(frozen=True, slots=True)
class SqlWork:
    """A chunk to read: the rows of `span` as of `base_ts`. table: None if no table has the chunk's physical id at that
    ts."""

    tenant: TenantKey
    backfill_id: str
    number: int
    span: KeySpan
    base_ts: int
    table: ReadTable | None


def write_sql_chunk(
    objects: ObjectStore, connect: Callable[[], SqlServer], work: SqlWork, page_rows: int = PAGE_ROWS
) -> ChunksWritten:
    """Read one chunk by SQL and write it. If the chunk exists, it is kept, and the upstream is not read. Errors are
    not raised, but are part of the result."""
    identity = ChunkId(work.tenant, work.backfill_id, work.number)
    try:
        if chunk_exists(objects, identity):
            return ChunksWritten(there=1)
        if work.table is None:
            return put_chunk(objects, identity, work.span, work.base_ts, (), ChunksWritten())
        with connect() as server:
            server.read_at(work.base_ts)
            check_identity(server, work.table)
            check_settled(server, work.table)
            rows = read_rows(server, work.table, work.span, page_rows)
            return put_chunk(objects, identity, work.span, work.base_ts, rows, ChunksWritten())
    except NotEncodable as error:
        assert work.table is not None
        return ChunksWritten(failed=f"{work.table.shown}: {error}; use br-full for this table")
    except TiStreamError as error:
        return ChunksWritten(failed=str(error), retry=isinstance(error, RetryableError | CommitStateUnknown))


def check_identity(server: SqlServer, table: ReadTable) -> None:
    """Check that the server has this table as of the session's ts. Raises InvalidRequest if it does not;
    Unavailable."""
    found = server.rows(sql.table_id_of(table.database, table.name))
    if not found or int(found[0][0] or b"0") != table.table_id:
        has = "no such table" if not found else f"another table id than {table.table_id}"
        raise InvalidRequest(
            f"{table.shown}: the server has {has}: it is another cluster, or its user may not see the table"
        )


def check_settled(server: SqlServer, table: ReadTable) -> None:
    """Check that no DDL job was rewriting the table at the session's ts. Raises Unavailable."""
    column = changing_column(table.encoding.table)
    if column is not None:
        raise Unavailable(f"{table.shown} waits: a DDL job is changing its column {column}")
    if server.rows(sql.reorganising(table.table_id)):
        raise Unavailable(f"{table.shown} waits: a DDL job is reorganising it")


def read_rows(server: SqlServer, table: ReadTable, span: KeySpan, page_rows: int) -> Iterator[pa.Table]:
    """Read the rows of a span in key order. Yields tables of base_chunk.SCHEMA with at most `page_rows` rows. Raises
    NotEncodable, InvalidRequest, Unavailable."""
    encoding = table.encoding
    source = sql.source_of(table.database, table.name, table.partition)
    extra = [COMMIT_TS] if server.accepts(f"SELECT {COMMIT_TS} FROM {source} LIMIT 0") else []
    if encoding.form is KeyForm.UPSTREAM:
        extra.append(sql.upstream_key(encoding, table.database, table.name, table.partition))
    keys = len(sql.key_names(encoding))
    for start, high in sql.ranges_of(encoding, span):
        low = None if start is None else (start, True)
        while True:
            statement = sql.select_rows(encoding, source, low, high, page_rows, *extra)
            page = server.columns(statement, keys + len(encoding.stored) + len(extra))
            if page.rows:
                yield _encoded(table, page, has_commit_ts=COMMIT_TS in extra)
            if page.rows < page_rows:
                break
            low = (tuple(array[-1].as_py() for array in page.arrays[:keys]), False)


def _encoded(table: ReadTable, page: Columns, *, has_commit_ts: bool) -> pa.Table:
    encoding, keys = table.encoding, len(sql.key_names(table.encoding))
    texts = {column.id: page.arrays[keys + at] for at, column in enumerate(encoding.stored)}
    values = encode_values(encoding, texts, page.rows)
    if encoding.form is KeyForm.UPSTREAM:
        raw = pa.array([bytes.fromhex(text.decode()) for text in page.arrays[-1].to_pylist()], pa.large_binary())
    else:
        raw = encode_keys(encoding, table.physical_id, page.arrays[:keys], page.rows)
    commit_ts = pa.nulls(page.rows, pa.int64())
    if has_commit_ts:
        stated = page.arrays[keys + len(encoding.stored)].cast(pa.large_string()).cast(pa.int64())
        commit_ts = pc.if_else(pc.greater(stated, 0), stated, commit_ts)
    found = pa.table({"key": raw, "value": values, "commit_ts": commit_ts}).cast(SCHEMA)
    rising = pc.less(raw.slice(0, page.rows - 1), raw.slice(1)).to_numpy(zero_copy_only=False)
    if not np.all(rising):
        raise NotEncodable("its rows do not come in the order of their record keys")
    return found
