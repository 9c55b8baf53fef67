"""Answers RowHistory: the versions of one row, newest first, as the events of a pull show them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Int64s
from tistream.decode.handle_bytes import ROWID, NotAKey, handle_columns, handles_of, key_text
from tistream.errors import InvalidRequest, UnknownName
from tistream.format.segment import SCHEMA
from tistream.model.base_cover import Hole
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.versions.logged import logged_changes
from tistream.pool.versions.lookup import PLACES
from tistream.pool.versions.merge import first_of_each, key_array
from tistream.pool.versions.plan import TableRange, record_prefix, records_of
from tistream.pool.versions.pool_reads import PoolReads
from tistream.read.completeness import complete_from
from tistream.read.cursor import Scope
from tistream.read.events import Events, Rows
from tistream.read.plan import OP_DELETE
from tistream.read.row_events import Shapes, render
from tistream.read.source import TenantSource
from tistream_api.encode.ndjson import NdjsonEncoder
from tistream_api.points.list_rows import undecodable
from tistream_api.points.net.moved_rows import chosen, key_texts

VERSIONS_MAX = 10_000  # versions of one raw key that one answer reads
_SHOWN = ("commit_ts", "start_ts", "op", "row", "old_row")


@dataclass(slots=True)
class RowHistory:
    """One request of RowHistory, and the objects that it reads."""

    scope: Scope
    key: dict[str, Any]
    window: Window
    limit: int
    source: TenantSource
    reads: PoolReads

    def answer(self) -> dict[str, Any]:
        """Read the row's versions in the window, newest first, at most `limit`, except that two events of one commit_ts
        are never parted. Returns the members of the answer's JSON; `next_to` is the `to` that continues below them,
        None if no version is left out. Raises UnknownName, InvalidRequest, Undecodable, Unavailable, Gone."""
        ids = self._ids()
        shapes = self.source.shapes(self.scope, ids, self.window)
        exact, scanned = self._raw_keys(shapes)
        lowest = self.window.low
        versions: list[dict[str, Any]] = []
        logged = [one for one in scanned if not self._known(one) and self._all_logged(one)]
        for rows, reached in self._rows(exact, [one for one in scanned if one not in logged]):
            versions += self._events(rows, shapes)
            lowest = max(lowest, reached)
        for one in logged:
            versions += self.reads.repeated(partial(self._logged, one, shapes))
        versions = [one for one in versions if int(one["commit_ts"]) > lowest]
        versions.sort(key=lambda one: (-int(one["commit_ts"]), one["op"] == "delete"))
        if len(versions) > self.limit:
            lowest = int(versions[self.limit]["commit_ts"])
            kept = [one for one in versions if int(one["commit_ts"]) > lowest]
            if not kept:  # two events of one commit_ts at a limit of one
                lowest, kept = lowest - 1, [one for one in versions if int(one["commit_ts"]) >= lowest]
            versions = kept
        return {
            "database": self.scope.database,
            "table": self.scope.table,
            "key": self.key,
            "from": str(self.window.low),
            "to": str(self.window.high),
            "versions": versions,
            "next_to": str(lowest) if lowest > self.window.low else None,
        }

    def _ids(self) -> list[int]:
        tables = self.source.tables_named(self.scope, self.window)
        if not tables and not self.source.name_exists(self.scope, self.window.low, self.window.high):
            name = f"{self.scope.database}.{self.scope.table}"
            raise UnknownName(
                f"there is no table {name} between {self.window.low} and {self.window.high}: ListTables has the names"
            )
        return sorted({one for table in tables for one in table.physical_ids})

    def _raw_keys(self, shapes: Shapes) -> tuple[list[tuple[int, bytes]], list[int]]:
        """Returns (the raw keys that the row may have; the physical ids of tables that must be read whole because their
        raw keys do not follow from the keys in events). Raises InvalidRequest if no version of a table has such a
        key."""
        exact: set[tuple[int, bytes]] = set()
        scanned: set[int] = set()
        wrong, fits = "", False
        for one, intervals in shapes.intervals.items():
            for version in {id(each.version): each.version for each in intervals if each.version}.values():
                try:
                    key_text(version.table, self.key)
                    fits = True
                    if handle_columns(version.table) is None:
                        scanned.add(one)
                    else:
                        exact |= {(one, record_prefix(one) + handle) for handle in handles_of(version.table, self.key)}
                except NotAKey as error:
                    wrong = str(error)
        if wrong and not fits:
            raise InvalidRequest(f"key {wrong}", {"parameter": "key"})
        return sorted(place for place in exact if place[0] not in scanned), sorted(scanned)

    def _rows(self, exact: list[tuple[int, bytes]], scanned: list[int]) -> Iterator[tuple[pa.Table, int]]:
        """Yield (versions, a commit_ts): for each (physical id, raw key) in `exact` its versions, and for each physical
        id in `scanned` those of all its rows. Each version has the one before it as `old_value` (segment.SCHEMA).
        Versions at or below the commit_ts are left out because there are too many; it is 0 if none is left out."""
        for one, key in exact:
            place = pa.table([[one], [key]], schema=PLACES)
            found = self.reads.versions(place, self.window, VERSIONS_MAX)
            if len(found):
                cut = len(found) >= VERSIONS_MAX
                yield self._with_old(found), found.column("commit_ts")[-1].as_py() if cut else 0
        for one in scanned:
            for found in self.reads.scan(self.window, [records_of(one)], every=True):
                yield self._with_old(found), 0

    def _with_old(self, found: pa.Table) -> pa.Table:
        """Add to each version the row before it, as `old_value`. That is the next version of the same key in `found`,
        or the newest version below the window."""
        keys = key_array(found)
        last = np.append(first_of_each(keys)[1:], True)
        values = pa.concat_arrays([key_or_value(found, "value"), self._below(found.filter(pa.array(last)))])
        at = np.arange(1, len(found) + 1)
        at[last] = len(found) + np.arange(int(last.sum()))
        columns = {name: found.column(name) for name in found.column_names} | {"old_value": values.take(pa.array(at))}
        return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)

    def _below(self, oldest: pa.Table) -> pa.Array:
        """The values before the versions `oldest`, which are the oldest ones of their keys in the window. That of a
        single key without a version below may be a row from before the pool; the segment of its change has it."""
        below = self.reads.newest(oldest.select(PLACES.names), self.window.low)
        if len(oldest) == 1 and below.column("op").null_count:
            table_id, key, commit_ts, start_ts = (
                oldest.column(name)[0].as_py() for name in ("table_id", "key", "commit_ts", "start_ts")
            )
            if not self._known(table_id):
                wanted = TableRange(table_id, KeySpan(key, key + b"\0"))
                changes = self.reads.repeated(partial(self._changes, Window(commit_ts - 1, commit_ts), wanted))
                same = changes.filter(pc.equal(changes.column("start_ts"), start_ts))
                if len(same):
                    return key_or_value(same.slice(0, 1), "old_value")
        return key_or_value(below, "value")

    def _known(self, physical_id: int) -> bool:
        """Whether the pool has the rows that the physical id had at the beginning of the window."""
        found = complete_from(self.source, self.reads.shards(), [physical_id])
        return not isinstance(found, Hole) and found <= self.window.low

    def _all_logged(self, physical_id: int) -> bool:
        """Whether segments have every change of the physical id in the window."""
        span, low = records_of(physical_id).span, self.window.low
        over = [one.logged_ts for one in self.reads.shards() if one.span.overlaps(span)]
        return all(logged_ts is not None and logged_ts <= low for logged_ts in over)

    def _changes(self, window: Window, wanted: TableRange) -> pa.Table:
        found = logged_changes(self.reads.shards(), self.reads.reader, window, wanted)
        return pa.concat_tables([SCHEMA.empty_table(), *found])

    def _logged(self, physical_id: int, shapes: Shapes) -> list[dict[str, Any]]:
        """The events of the row by the changes in segments, which have the rows from before the pool as old values."""
        shards, reader = self.reads.shards(), self.reads.reader
        changes = logged_changes(shards, reader, self.window, records_of(physical_id))
        return [event for rows in changes for event in self._events(rows, shapes)]

    def _events(self, rows: pa.Table, shapes: Shapes) -> Iterator[dict[str, Any]]:
        found = render(rows, shapes)
        if found.barrier is not None:
            raise undecodable(found.barrier)
        rendered = (each for each in found.sets if isinstance(each, Rows))
        sets = [one for one in (_of_key(each, self.key) for each in rendered) if len(one)]
        if not sets:
            return
        sources = {
            (commit_ts, start_ts): source
            for commit_ts, start_ts, source in zip(
                *(rows.column(name).to_pylist() for name in ("commit_ts", "start_ts", "txn_source")), strict=True
            )
        }
        for piece in NdjsonEncoder().events(Events.ordered(sets)):
            for line in piece.splitlines():
                event = orjson.loads(line)
                source = sources[int(event["commit_ts"]), int(event["start_ts"])]
                shown = {name: event[name] for name in _SHOWN}
                yield {**shown, "txn_source": None if source is None else str(source)}


def key_or_value(table: pa.Table, name: str) -> pa.Array:
    """The binary column `name` as one array."""
    column = table.column(name).combine_chunks()
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _of_key(rows: Rows, key: dict[str, Any]) -> Rows:
    """The events whose row has this key. Keys are compared as text in the form that they have in this version of the
    table, because DDL may have changed the type of a key column, or which columns the key has."""
    if not len(rows):
        return rows
    table = rows.version.table
    try:
        wanted: Any = key_text(table, key)
    except NotAKey:
        return chosen(rows, np.empty(0, np.int64))
    if not table.key_columns:
        wanted = int(key[ROWID])
    hit = np.zeros(len(rows), np.bool_)
    deletes = np.flatnonzero(rows.op == OP_DELETE)
    puts = np.flatnonzero(rows.op != OP_DELETE)
    for some, image, places in ((deletes, rows.old, rows.old_at), (puts, rows.new, rows.new_at)):
        if len(some) and image is not None:
            keys = key_texts(rows, image, places[some])
            hit[some] = pc.equal(keys, pa.scalar(wanted, keys.type)).to_numpy(zero_copy_only=False)
    at: Int64s = np.flatnonzero(hit)
    return chosen(rows, at)
