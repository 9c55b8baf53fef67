"""Cuts tables into chunks for a backfill by SQL: at a key of each Region if the server shows its Regions, otherwise by
reading through the keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa

from tistream.encode.rows import encode_keys
from tistream.format.backfill.chunk_plan import ChunkPlan
from tistream.model.span import KeySpan
from tistream.schema.tidb.meta_change import record_span
from tistream_ingest.sqlread import statements as sql
from tistream_ingest.sqlread.read_table import ReadTable
from tistream_ingest.sqlread.sql_server import Refused, SqlServer

CHUNK_ROWS = 32_768


def cut_tables(server: SqlServer, tables: Sequence[ReadTable], min_ts: int, chunk_rows: int = CHUNK_ROWS) -> ChunkPlan:
    """Plan the chunks of a backfill of these tables, in the order given. The caller has set the server's session to
    read as of `min_ts`. `chunk_rows`: rows of a chunk, if the server does not show its Regions. Raises Unavailable,
    InvalidRequest, NotEncodable."""
    spans: list[KeySpan] = []
    for table in tables:
        whole = record_span(table.physical_id)
        cuts = [key for key in _cuts(server, table, chunk_rows) if whole.start < key < whole.end]
        bounds = [whole.start, *sorted(set(cuts)), whole.end]
        spans += [KeySpan(start, end) for start, end in pairwise(bounds)]
    return ChunkPlan(tuple(spans), min_ts, exact=False)


def _cuts(server: SqlServer, table: ReadTable, chunk_rows: int) -> Iterator[bytes]:
    if not sql.has_bounds(table.encoding):
        return
    source = sql.source_of(table.database, table.name, table.partition)
    try:
        found = server.rows(sql.select_regions(table.encoding, source))
    except Refused:
        yield from _walked(server, table, source, chunk_rows)
        return
    for row in found[1:]:  # before the first one are no rows of another Region
        yield _key(table, row)


def _walked(server: SqlServer, table: ReadTable, source: str, chunk_rows: int) -> Iterator[bytes]:
    low: tuple[sql.Values, bool] | None = None
    while found := server.rows(sql.select_cut(table.encoding, source, low, chunk_rows)):
        yield _key(table, found[0])
        low = (tuple(one or b"" for one in found[0]), True)


def _key(table: ReadTable, row: Sequence[bytes | None]) -> bytes:
    texts = [pa.array([one], pa.large_binary()) for one in row]
    found: bytes = encode_keys(table.encoding, table.physical_id, texts, 1)[0].as_py()
    return found
