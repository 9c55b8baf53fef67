"""Makes one answer of a pull that begins with the rows as of a ts (docs/backfill.md).

The rows come table by table, in the order of logical ids and raw keys, between `snapshot_begin` and `snapshot_end`. An
answer that ends before `snapshot_end` has a `continue` line. The last answer ends with a `resolved` line at the
snapshot's ts. The cursor of that line belongs to an ordinary pull, which continues with the first change above the ts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import orjson

from tistream.decode.json_lines import LineColumn, LineGroup, LineWriter
from tistream.decode.json_text import object_parts
from tistream.decode.kernels.render_kernel import Form
from tistream.errors import Gone, RetryableError
from tistream.model.base_cover import Hole
from tistream.model.span import KeySpan, shown_key
from tistream.model.ts import Window
from tistream.pool.versions.pool_reads import PoolReads
from tistream.read import cursor as cursors
from tistream.read.completeness import complete_from, known_parts
from tistream.read.cursor import Position, Scope
from tistream.read.imported import check_rows
from tistream.read.row_events import Barrier
from tistream.read.source import TenantSource
from tistream.schema.visible import TableVersion
from tistream_api.encode.piece import Piece
from tistream_api.points import point_cursor
from tistream_api.points.list_rows import undecodable
from tistream_api.points.named_table import NotComplete, ranges_of, shape_of
from tistream_api.points.point_cursor import Kind, PointPosition
from tistream_api.points.row_formats import PIECE_BYTES, key_parts
from tistream_api.points.table_rows import DecodedRows, pages


def check_snapshot(source: TenantSource, reads: PoolReads, tables: Sequence[TableVersion], ts: int) -> None:
    """Check that every row of the tables at `ts` is in the pool. Raises TableImported; NotComplete, with the table as
    `table`, as `base_ts` the ts from which on all of its rows are known (None if some are not known), and as `progress`
    the numbers of known and missing parts."""
    shards = reads.shards()
    for version in tables:
        name, ids = f"{version.database}.{version.head.name}", version.head.physical_ids
        found = complete_from(source, shards, ids)
        if isinstance(found, Hole):
            reason = f"keys from {shown_key(found.span.start)} on have not been backfilled: run a backfill of it"
        elif ts < found:
            reason = f"its rows are known from {found} on, not at {ts}"
        else:
            check_rows(source, shards, version, ts)
            continue
        known, missing = known_parts(shards, ids)
        base_ts = None if isinstance(found, Hole) else str(found)
        progress = {"known_parts": known, "missing_parts": missing}
        raise NotComplete(
            f"snapshot of table {name}: {reason}", {"table": name, "base_ts": base_ts, "progress": progress}
        )


@dataclass(slots=True)
class SnapshotPage:
    """One answer of a pull that begins with a snapshot. `tables` are the tables at the snapshot's ts, by logical id.
    The answer begins after the position `at`, whose high_ts is the snapshot's ts, and whose phase is 0 before the first
    line. `count`, `record_barrier` and `stopping` are as in list_rows.RowsPage."""

    scope: Scope
    tables: Sequence[TableVersion]
    at: PointPosition
    limit: int
    source: TenantSource
    reads: PoolReads
    count: Callable[[int, int, int], None]
    record_barrier: Callable[[Barrier], None]
    stopping: Callable[[], bool]

    def pieces(self) -> Iterator[Piece]:
        """Yield the answer's bytes. If the first row to send cannot be decoded or read, raises the error before any
        bytes, so that it has a status; a later row of this kind ends the answer with a `continue` line."""
        at, sent = self.at, 0
        begin: Iterator[Piece] = iter(())
        if at.phase == 0:
            begin = self._line({"type": "snapshot_begin", "snapshot_ts": str(at.high_ts)})
            at = PointPosition(0, at.high_ts, 1)
        try:
            for version, rows, barrier in self._found(at):
                page = rows if len(rows) <= self.limit - sent else rows.slice(0, self.limit - sent)
                if barrier is not None:
                    self.record_barrier(barrier)
                    if not sent and not len(page):
                        raise undecodable(barrier)
                if len(page):
                    yield from begin  # once: from now on, no error status is possible
                    self.count(len(page), len(page), 0)
                    yield from self._rows(version, page)
                    at = PointPosition(0, at.high_ts, 1, version.head.id, page.raw[len(page) - 1].as_py())
                sent += len(page)
                if len(page) < len(rows) or barrier is not None or sent == self.limit or self.stopping():
                    yield from begin
                    yield from self._more(at)
                    return
        except (RetryableError, Gone):
            if not sent:
                raise
            yield from self._more(at)  # the next answer goes on, or has the error
            return
        yield from begin
        yield from self._line({"type": "snapshot_end", "snapshot_ts": str(at.high_ts)})
        cursor = cursors.encode(self.scope, Position(at.high_ts))
        yield from self._line({"type": "resolved", "resolved_ts": str(at.high_ts), "cursor": cursor})

    def _found(self, at: PointPosition) -> Iterator[tuple[TableVersion, DecodedRows, Barrier | None]]:
        for version in self.tables:
            if version.head.id < at.table_id:
                continue
            resumed = version.head.id == at.table_id and at.key
            rest = KeySpan(at.key + b"\0", b"") if resumed else KeySpan(b"", b"")
            asked = ranges_of(version.head.physical_ids)
            ranges = [one for one in (found.clip(rest) for found in asked) if one is not None]
            shape = shape_of(self.source, version, at.high_ts, None)
            for rows, barrier in pages(shape, self.reads.scan(Window(0, at.high_ts), ranges), None):
                yield version, rows, barrier

    def _rows(self, version: TableVersion, rows: DecodedRows) -> Iterator[Piece]:
        shape = rows.shape
        names = {"database": version.database, "table": version.head.name, "table_id": str(version.head.id)}
        constant = orjson.dumps({"schema_version": str(shape.schema_version), **names}).decode()[1:-1]
        groups = [
            LineGroup('{"type":"row","op":"read"', [LineColumn(',"commit_ts":', Form.INT_TEXT, rows.known_commit_ts)]),
            LineGroup(f',{constant},"key":', key_parts(rows), brackets=True),
            LineGroup(',"row":', object_parts(shape.columns, rows.columns), brackets=True),
        ]
        for written in LineWriter(len(rows), groups, ',"old_row":null}\n').write(PIECE_BYTES):
            yield self._counted(written.data.tobytes())

    def _more(self, at: PointPosition) -> Iterator[Piece]:
        yield from self._line({"type": "continue", "cursor": point_cursor.encode(Kind.SNAPSHOT, self.scope, at)})

    def _line(self, line: dict[str, str]) -> Iterator[Piece]:
        yield self._counted(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))

    def _counted(self, piece: bytes) -> bytes:
        self.count(0, 0, len(piece))
        return piece
