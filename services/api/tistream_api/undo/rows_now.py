"""Reads the present state of the rows that an undo concerns: by their raw keys, and by the values of their key columns
if rows have got other raw keys since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.handle_bytes import handle_columns, key_text
from tistream.format.segment import OP_PUT
from tistream.model.ts import Window
from tistream.pool.versions.lookup import PLACES
from tistream.pool.versions.plan import record_prefix
from tistream.pool.versions.pool_reads import PoolReads
from tistream.restore.undo_plan import CurrentRow
from tistream.schema.visible import TableVersion
from tistream_api.points.list_rows import undecodable
from tistream_api.points.named_table import key_ranges, ranges_of
from tistream_api.points.row_formats import NdjsonRows
from tistream_api.points.table_rows import Shape, decoded, key_texts, pages
from tistream_api.undo import row_cells
from tistream_api.undo.changed_rows import ChangedRow

LOOKED_UP = 8_192  # raw keys that are looked up at once
PREFIX_BYTES = len(record_prefix(0))


@dataclass(slots=True)
class RowsNow:
    """Reads the present rows of one table, as of `ts`. `version` is the table's definition at `ts`."""

    version: TableVersion
    ts: int
    reads: PoolReads
    _alive: dict[str, CurrentRow] = field(default_factory=dict)  # by identity
    _identity: dict[bytes, str] = field(default_factory=dict)  # by raw key
    _deleted: dict[bytes, CurrentRow] = field(default_factory=dict)  # by raw key

    def read(self, rows: Mapping[str, ChangedRow]) -> dict[str, CurrentRow]:
        """Read the present state of each row. Rows are named by the text that identifies them (row_cells.identity).
        Raises Undecodable, Unavailable, Gone."""
        self._look_up({raw for row in rows.values() for raw in row.raw})
        missing = {name: row for name, row in rows.items() if self._found(name, row) is None}
        elsewhere = self._elsewhere(missing)
        if elsewhere:
            self._look_up(elsewhere)
        return {name: self._found(name, row) or self._absent(row) for name, row in rows.items()}

    def _found(self, name: str, row: ChangedRow) -> CurrentRow | None:
        if name in self._alive:
            return self._alive[name]
        if row_cells.same_key_columns((row.version.table, self.version.table)):
            return None
        # DDL has changed which columns the key has: a row is the one under its raw key.
        alive = [self._identity[raw] for raw in row.raw if raw in self._identity]
        return self._alive[alive[-1]] if alive else None

    def _absent(self, row: ChangedRow) -> CurrentRow:
        """The state of a row that does not exist, with the timestamps of its newest deletion."""
        found = [self._deleted[raw] for raw in row.raw if raw in self._deleted]
        return max(found, key=lambda one: one.commit_ts, default=CurrentRow(None))

    def _elsewhere(self, missing: Mapping[str, ChangedRow]) -> set[bytes]:
        """Find further raw keys under which these rows may be stored now."""
        table, ids = self.version.table, self.version.head.physical_ids
        keys = [
            row_cells.shown_key(table, row.key)
            for row in missing.values()
            if row_cells.same_key_columns((row.version.table, table))
        ]
        if not keys:
            return set()
        if handle_columns(table) is not None:
            return {one.span.start for key in keys for one in key_ranges(table, ids, key)[0]} - self._known
        texts = pa.array([key_text(table, key) for key in keys], pa.large_string())
        return self._scanned(texts) - self._known

    def _scanned(self, texts: pa.Array) -> set[bytes]:
        """Scan the table. Returns the raw keys of the rows whose keys, as text, are in `texts`."""
        shape = self._shape(self.version.table.key_columns)
        found: set[bytes] = set()
        ranges = ranges_of(self.version.head.physical_ids)
        for rows, barrier in pages(shape, self.reads.scan(Window(0, self.ts), ranges), None):
            if barrier is not None:
                raise undecodable(barrier)
            hit = pc.is_in(key_texts(rows), value_set=texts)
            found.update(rows.raw.filter(hit).to_pylist())
        return found

    @property
    def _known(self) -> set[bytes]:
        return self._identity.keys() | self._deleted.keys()

    def _look_up(self, raw: Iterable[bytes]) -> None:
        prefixes = {record_prefix(one): one for one in self.version.head.physical_ids}
        places = sorted((key, prefixes[key[:PREFIX_BYTES]]) for key in raw if key[:PREFIX_BYTES] in prefixes)
        for first in range(0, len(places), LOOKED_UP):
            some = places[first : first + LOOKED_UP]
            asked = pa.table([[one for _, one in some], [key for key, _ in some]], schema=PLACES)
            self._take(self.reads.newest(asked, self.ts))

    def _take(self, newest: pa.Table) -> None:
        versions = newest.filter(pc.is_valid(newest.column("commit_ts")))
        put = pc.equal(versions.column("op"), OP_PUT)
        gone = versions.filter(pc.invert(put)).select(["key", "commit_ts", "start_ts"]).to_pylist()
        self._deleted.update((one["key"], CurrentRow(None, one["commit_ts"], one["start_ts"])) for one in gone)
        puts = versions.filter(put)
        if not len(puts):
            return
        columns = self.version.table.visible_columns
        shape = self._shape(columns)
        rows, barrier = decoded(shape, puts)
        if barrier is not None:
            raise undecodable(barrier)
        lines = b"".join(NdjsonRows(shape).rows(rows)).splitlines()
        for line, raw, start_ts in zip(
            lines, puts.column("key").to_pylist(), puts.column("start_ts").to_pylist(), strict=True
        ):
            self._alive_row(orjson.loads(line), raw, start_ts)

    def _alive_row(self, line: Mapping[str, Any], raw: bytes, start_ts: int) -> None:
        table = self.version.table
        name = row_cells.identity(table, line["key"])
        cells = row_cells.cells_of(table.visible_columns, line["row"])
        self._identity[raw] = name
        self._alive[name] = CurrentRow(cells, int(line["commit_ts"]), start_ts)

    def _shape(self, columns: Any) -> Shape:
        return Shape(self.version, self.ts, 0, columns)
