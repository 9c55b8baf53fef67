"""A whole table as of a ts as Arrow: the API's answer without HTTP, from a base run."""

from __future__ import annotations

from bench.inputs.mixed_rows import committed
from bench.inputs.pulled_pool import SNAPSHOT_TS
from bench.inputs.version_pool import SCOPE, VersionPool, record_barrier
from bench.inputs.version_runs import OBJECT_ROWS, put_run
from tistream.decode import warm
from tistream.format.run import SCHEMA
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_api.points.list_rows import RowsPage
from tistream_api.points.named_table import ranges_asked, shape_of, table_at
from tistream_api.points.row_formats import ENCODERS


class RowsAt:
    """ListRows of all rows of mixed_rows.committed, which are a base run in memory. A call returns the rows sent."""

    def __init__(self, rows: int) -> None:
        warm()
        self._rows, objects = rows, MemoryObjectStore()
        table = committed(rows, SNAPSHOT_TS).select(SCHEMA.names)
        end_ts = int(table.column("commit_ts")[-1].as_py())
        parts = [table.slice(at, OBJECT_ROWS) for at in range(0, rows, OBJECT_ROWS)]
        runs = [put_run(objects, part, "base", number, None, end_ts) for number, part in enumerate(parts)]
        self._pool = VersionPool(objects, runs, end_ts, end_ts)

    def __call__(self) -> int:
        source, ts, sent = self._pool.source, self._pool.end_ts, 0
        version = table_at(source, SCOPE, ts, None)
        shape = shape_of(source, version, ts, None)
        ranges, only = ranges_asked(version, None, None, None)

        def count(rows: int, _events: int, _size: int) -> None:
            nonlocal sent
            sent += rows

        encoder, reads = ENCODERS["arrow"](shape), self._pool.reads()
        page = RowsPage(
            SCOPE, shape, ranges, only, b"", self._rows, reads, encoder, count, record_barrier, lambda: False
        )
        for _ in page.pieces():
            pass
        return sent
