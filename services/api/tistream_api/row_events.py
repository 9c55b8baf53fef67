"""Committed rows to row events, whole columns at a time. Pure. (design.md 5, "What an event says")"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.json_text import handle_texts, render_objects
from tistream.decode.rows import decode_rows
from tistream.format.segment import OP_PUT as STORED_PUT
from tistream.schema.table import JSON, Column
from tistream.schema.visible import TableVersion
from tistream_api import events
from tistream_api.cursor import Place
from tistream_api.plan import OP_DELETE, OP_PUT

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Interval:
    """Rows with `low < commit_ts <= high` are shown as `version` says; None: they are not shown."""

    low: int
    high: int
    version: TableVersion | None


@dataclass(frozen=True, slots=True)
class Shapes:
    """What the schema history says about the rows of one chunk.

    `intervals`: per physical id that is to be shown. `unknown`: ids that no schema ever named. From `version_ts[i]`
    (exclusive) on, events bear `versions[i]`; `version_ts` ascends and begins below every row.
    """

    intervals: Mapping[int, Sequence[Interval]]
    unknown: frozenset[int]
    version_ts: Ints
    versions: pa.Array  # strings


@dataclass(frozen=True, slots=True)
class Barrier:
    """A row that cannot be shown, and so nothing from its commit_ts on."""

    commit_ts: int
    table: str | None  # database.table
    table_id: int  # physical
    key: bytes
    reason: str

    def __str__(self) -> str:
        where = f"table {self.table}" if self.table else f"table id {self.table_id}"
        return f"{where}, key {self.key.hex()}, commit_ts {self.commit_ts}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Rendered:
    """Row events of one chunk in no order (events.SCHEMA), and the lowest barrier met."""

    table: pa.Table
    barrier: Barrier | None


def render(rows: pa.Table, shapes: Shapes, op: int | None = None) -> Rendered:
    """The events of committed rows (tistream.format.segment.SCHEMA, any order); `op` asks for deletes or puts alone."""
    parts: list[pa.Table] = []
    barriers: list[Barrier] = []
    rows = rows.combine_chunks()
    ids, commit_ts = (rows.column(name).to_numpy() for name in ("table_id", "commit_ts"))
    order = np.lexsort((commit_ts, ids))
    if not (np.diff(order) == 1).all():
        rows = rows.take(pa.array(order)).combine_chunks()
        ids, commit_ts = ids[order], commit_ts[order]
    starts = np.flatnonzero(np.diff(ids, prepend=np.int64(-1)))
    for start, end in pairwise([*starts.tolist(), len(ids)]):
        physical_id = int(ids[start])
        if physical_id in shapes.unknown:
            barriers.append(_nameless(rows.slice(start, 1), physical_id))
        for interval in shapes.intervals.get(physical_id, ()):
            low, high = (
                int(start + np.searchsorted(commit_ts[start:end], ts, side="right"))
                for ts in (interval.low, interval.high)
            )
            if interval.version is not None and low < high:
                part = _Part(rows.slice(low, high - low), interval.version, shapes, op)
                parts.extend(part.events())
                barriers.extend(part.barriers)
    table = pa.concat_tables(parts) if parts else events.EMPTY
    return Rendered(table, min(barriers, key=lambda barrier: barrier.commit_ts, default=None))


def _nameless(row: pa.Table, physical_id: int) -> Barrier:
    first = row.select(["commit_ts", "key"]).to_pylist()[0]
    return Barrier(first["commit_ts"], None, physical_id, first["key"], "no schema ever named its table")


@dataclass(frozen=True, slots=True)
class _Image:
    """One side of some rows, decoded: the visible row's and the key's JSON text."""

    at: Ints  # per row of the part its place in the arrays below, -1 where it has no such side
    row: pa.Array
    key: pa.Array
    json_nulls: pa.Array | None  # text that tells SQL NULL from the JSON document null; both read as null

    @classmethod
    def of_nothing(cls, rows: int) -> _Image:
        """No row has this side."""
        none = pa.array([], pa.large_string())
        return cls(np.full(rows, -1, dtype=np.int64), none, none, None)


class _Part:
    """Rows of one physical table in one of its versions."""

    def __init__(self, rows: pa.Table, version: TableVersion, shapes: Shapes, op: int | None) -> None:
        self.barriers: list[Barrier] = []
        self._version = version
        self._shapes = shapes
        self._op = op
        column = {name: _chunk(rows, name) for name in rows.schema.names}
        put = column["op"].to_numpy(zero_copy_only=False) == STORED_PUT
        old = np.asarray(column["old_value"].is_valid())
        wanted = put | old  # a delete of a row that never existed is no event
        if op == OP_DELETE:
            wanted = old
        elif op == OP_PUT:
            wanted = put
        if not wanted.all():
            keep = pa.array(np.flatnonzero(wanted))
            column = {name: values.take(keep) for name, values in column.items()}
            put, old = put[wanted], old[wanted]
        self._column = column
        self._put, self._old = put, old

    def events(self) -> list[pa.Table]:
        """The part's events, deletes and puts each in the rows' own order."""
        if not len(self._put):
            return []
        new, old = self._image("value", self._put), self._image("old_value", self._old)
        both = np.flatnonzero((new.at >= 0) & (old.at >= 0))
        unchanged, moved = (np.zeros(len(self._put), dtype=bool) for _ in range(2))
        if len(both):
            of_new, of_old = new.at[both], old.at[both]
            same_row = _equal(_taken(new.row, of_new), _taken(old.row, of_old))
            if new.json_nulls is not None and old.json_nulls is not None:
                same_row &= _equal(_taken(new.json_nulls, of_new), _taken(old.json_nulls, of_old))
            unchanged[both] = same_row
            moved[both] = ~_equal(_taken(new.key, of_new), _taken(old.key, of_old))
        out = []
        if self._op != OP_PUT:
            gone = np.flatnonzero((old.at >= 0) & (~self._put | moved))
            out.append(self._lines("delete", OP_DELETE, gone, _taken(old.key, old.at[gone]), None, old, old.at[gone]))
        if self._op != OP_DELETE:
            come = np.flatnonzero((new.at >= 0) & ~unchanged)
            before = np.where(moved[come], -1, old.at[come])
            key = _taken(new.key, new.at[come])
            out.append(self._lines("put", OP_PUT, come, key, new, old, before))
        return [table for table in out if len(table)]

    def _image(self, name: str, mask: npt.NDArray[np.bool_]) -> _Image:
        """Decode one side of the rows in `mask`. Rows that cannot be decoded become barriers."""
        table = self._version.table
        visible, keys = table.visible_columns, table.key_columns
        columns = [*visible, *(column for column in keys if column not in visible)]
        rows = np.flatnonzero(mask)
        if not len(rows):
            return _Image.of_nothing(len(mask))
        values, raw = (_taken(self._column[one], rows) for one in (name, "key"))
        if values.null_count:
            for row in rows[np.asarray(values.is_null())]:
                self._undecodable(int(row), "a put without a value")
            rows = rows[np.asarray(values.is_valid())]
            values, raw = (_taken(self._column[one], rows) for one in (name, "key"))
        decoded = decode_rows(table, columns, raw, values)
        for bad, reason in decoded.errors.items():
            self._undecodable(int(rows[bad]), reason)
        at = np.full(len(mask), -1, dtype=np.int64)
        at[rows] = np.arange(len(rows))
        row = render_objects(visible, _select(decoded.batch, range(len(visible))))
        return _Image(
            at, _large(row), _large(self._key(keys, columns, decoded.batch, raw)), _nulls(columns, decoded.batch)
        )

    def _key(self, keys: Sequence[Column], columns: list[Column], batch: pa.RecordBatch, raw: pa.Array) -> pa.Array:
        if keys:
            return render_objects(keys, _select(batch, [columns.index(column) for column in keys]))
        return _join('{"_tidb_rowid":"', handle_texts(raw), '"}')

    def _undecodable(self, row: int, reason: str) -> None:
        commit_ts, physical_id, key = (self._column[name][row].as_py() for name in ("commit_ts", "table_id", "key"))
        name = f"{self._version.database}.{self._version.table.name}"
        self.barriers.append(Barrier(commit_ts, name, physical_id, key, reason))

    def _lines(
        self, op: str, code: int, rows: Ints, key: pa.Array, new: _Image | None, old: _Image, before: Ints
    ) -> pa.Table:
        """`rows` are indexes into the part; `before` the places of their old images (-1: none)."""
        if not len(rows):
            return events.EMPTY
        commit, start, raw = (_taken(self._column[name], rows) for name in ("commit_ts", "start_ts", "key"))
        version = self._version
        at = np.searchsorted(self._shapes.version_ts, commit.to_numpy(), side="left") - 1
        names = f',"database":{_quoted(version.database)},"table":{_quoted(version.table.name)}'
        line = _join(
            f'{{"type":"row","op":"{op}","commit_ts":"',
            pc.cast(commit, pa.large_string()),
            '","start_ts":"',
            pc.cast(start, pa.large_string()),
            f'"{names},"table_id":"{version.table.id}","schema_version":"',
            self._shapes.versions.take(pa.array(at)),
            '","key":',
            key,
            ',"row":',
            "null" if new is None else _taken(new.row, new.at[rows]),
            ',"old_row":',
            "null" if (before < 0).all() else old.row.take(pa.array(before, mask=before < 0)),
            "}\n",
        )
        count = len(rows)
        return pa.table(
            [
                commit,
                pa.array(np.full(count, int(Place.ROW))),
                start,
                pa.array(np.full(count, version.table.id)),
                pa.array(np.full(count, code)),
                raw.cast(pa.large_binary()),
                line.cast(pa.large_binary()),
            ],
            schema=events.SCHEMA,
        )


def _taken(values: pa.Array, rows: Ints) -> pa.Array:
    """`values` at ascending, distinct `rows`; no copy where those are all of them."""
    return values if len(rows) == len(values) else values.take(pa.array(rows))


def _chunk(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _large(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.large_string())


def _join(*parts: pa.Array | str) -> pa.Array:
    """Texts joined row by row; a null is the text `null`."""
    text = pa.large_string()
    large = [pa.scalar(part, text) if isinstance(part, str) else part.cast(text) for part in parts]
    end = pa.scalar("", text)
    return pc.binary_join_element_wise(*large, end, null_handling="replace", null_replacement="null")


def _select(batch: pa.RecordBatch, places: Sequence[int]) -> pa.RecordBatch:
    if not len(places):  # a table may show nothing but virtual columns: its rows are there all the same
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays([batch.column(at) for at in places], names=[str(at) for at in range(len(places))])


def _nulls(columns: Sequence[Column], batch: pa.RecordBatch) -> pa.Array | None:
    """Which JSON columns are SQL NULL, one letter a column."""
    masks = [pc.if_else(batch.column(at).is_null(), "n", "v") for at, column in enumerate(columns) if column.tp == JSON]
    return pc.binary_join_element_wise(*masks, "") if masks else None


def _equal(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.fill_null(pc.equal(left, right), False))


def _quoted(name: str) -> str:
    return orjson.dumps(name).decode()
