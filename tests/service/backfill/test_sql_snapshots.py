"""A golden set cut at T0 into a backfill by SQL, each table as of a random ts, and the log: snapshots equal SELECT."""

from __future__ import annotations

import functools
import json
from collections import Counter
from typing import Any

import pytest

from support.cut_set import commit_timestamps
from support.effort import cases
from support.golden_tidb import GoldenTidb
from support.points_world import point_world
from support.snapshot_world import NAME, SnapshotWorld
from tistream.encode.table_encoding import KeyForm
from tistream.format.backfill.base_chunk import ChunkId
from tistream.format.backfill.chunk_plan import table_id_of
from tistream.model.span import KeySpan
from tistream_ingest.sqlread.chunk_reading import SqlWork, write_sql_chunk
from tistream_ingest.sqlread.read_table import table_now
from tistream_ingest.sqlread.sql_server import SqlServer

PAGE_ROWS = 50


class SqlWorld(SnapshotWorld):
    """Its chunks are read from a server, which may state commit_ts."""

    exact = False

    def __init__(self, seed: int, tasks: int) -> None:
        self.tidb: GoldenTidb | None = None
        super().__init__(seed, tasks)

    def _write(self, identity: ChunkId, span: KeySpan, says: int) -> None:
        if self.tidb is None:
            newer = bool(self.rng.getrandbits(1))
            self.tidb = GoldenTidb(self.made, self.end, has_commit_ts=newer)
        table = table_now(self.made.history, table_id_of(span), says, new_collations=True)
        if table is not None and table.encoding.form is KeyForm.UPSTREAM:
            super()._write(identity, span, says)  # this server has no collations: another source reads these tables
            return
        with self.tidb.serving():
            url = self.tidb.url
            work = SqlWork(self.tenant, identity.backfill_id, identity.number, span, says, table)
            found = write_sql_chunk(self.objects, lambda: SqlServer(url), work, PAGE_ROWS)
        assert found.failed is None, found.failed
        assert found.written == 1


@functools.cache
def world(seed: int, tasks: int) -> SqlWorld:
    return SqlWorld(seed, tasks)


def shown(lines: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps([line["key"], line["row"], line["schema_version"]]) for line in lines)


@pytest.mark.parametrize(("seed", "tasks"), cases([(1, 2)], [(seed, 1 + seed % 4) for seed in range(2, 12)]))
def test_a_snapshot_of_rows_that_sql_read_is_what_select_shows(seed: int, tasks: int) -> None:
    one, plain = world(seed, tasks), point_world(NAME)
    stamps = [ts for ts in commit_timestamps(NAME) if ts >= max(one.base_ts.values())]
    compared = 0
    for ts in [*one.rng.sample(stamps, 2), one.end]:
        (lines,) = one.answers(ts=ts, limit=1_000_000)
        by_table: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for line in lines[1:-2]:
            by_table.setdefault((line["database"], line["table"]), []).append(line)
        for version in one.made.tables(ts):
            name = version.database, version.head.name
            assert shown(by_table.pop(name, [])) == shown(plain.lines(*name, ts)), (ts, name)
            compared += 1
        assert not by_table
    assert compared > 50


def test_every_cursor_of_such_a_snapshot_resumes() -> None:
    one = world(1, 2)
    (whole,) = one.answers(ts=one.end, limit=1_000_000)
    found = [line for answer in one.answers(ts=one.end, limit=777) for line in answer if line["type"] != "continue"]
    assert found == whole
