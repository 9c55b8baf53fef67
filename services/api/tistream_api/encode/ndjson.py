"""Encodes events as NDJSON, one event in a line (design.md 5). Pure.

Values have been decoded to text before, by type, in the library: tistream/decode/cells, for example decimal_cells.py.
tistream/decode/json_text.py decides which types have quotes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from tistream.arrays import Bytes, Int64s
from tistream.decode.cells.string_cells import gather_bytes
from tistream.decode.json_lines import LineColumn, LineGroup, LineWriter
from tistream.decode.json_text import object_parts, quoted
from tistream.decode.kernels.render_kernel import Form
from tistream.read.events import Ddls, Events, Image, Rows
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb.table import Table
from tistream_api.encode.page_end import PageEnd
from tistream_api.encode.raw_encoding import is_raw
from tistream_api.encode.raw_encoding import lines as raw_lines

PIECE_BYTES = 1 << 20
MIXED_EVENTS = 16_384  # events of several tables are rendered table by table, at most this number at once

_OPS = pa.array(["delete", "put"], pa.large_string())


class NdjsonEncoder:
    """Encodes events as lines of JSON. It has no state."""

    def events(self, events: Events) -> Iterator[bytes]:
        """Yield the lines of the events, in pieces of about PIECE_BYTES."""
        if not len(events):
            return
        if is_raw(events):
            yield from raw_lines(events, PIECE_BYTES)
            return
        if (events.source == events.source[0]).all():
            yield from _one_set(events)
            return
        for start in range(0, len(events), MIXED_EVENTS):
            mixed = _mixed(events.between(start, start + MIXED_EVENTS))
            for at in range(0, len(mixed), PIECE_BYTES):
                yield mixed[at : at + PIECE_BYTES].tobytes()

    def end(self, end: PageEnd) -> Iterator[bytes]:
        """Encode the position as one line."""
        line: dict[str, str | None] = {"type": end.type}
        line |= {name: str(ts) for name, ts in end.stamps().items() if ts is not None}
        line["cursor"] = end.cursor
        yield orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)

    def close(self) -> Iterator[bytes]:
        """Return nothing, because no bytes follow the last line."""
        return iter(())


def _one_set(events: Events) -> Iterator[bytes]:
    one = events.sets[int(events.source[0])]
    if isinstance(one, Ddls):
        yield b"".join(_ddl_line(one.events[at]) for at in events.at.tolist())
        return
    assert isinstance(one, Rows)
    for written in _writer(one, events).write(PIECE_BYTES):
        yield written.data.tobytes()


def _mixed(events: Events) -> Bytes:
    """Render the lines of events that belong to several sets (Rows or Ddls): first set by set, then in the order of the
    events."""
    places, sizes = np.empty((2, len(events)), np.int64)
    data: list[Bytes] = []
    begin = 0
    for number in np.unique(events.source).tolist():
        one, at = events.sets[number], np.flatnonzero(events.source == number)
        if isinstance(one, Ddls):
            lines = [_ddl_line(one.events[place]) for place in events.at[at].tolist()]
            pieces = [(np.frombuffer(b"".join(lines), np.uint8), np.array([len(line) for line in lines]))]
        else:
            assert isinstance(one, Rows)
            written = _writer(one, events.chosen(at)).write(PIECE_BYTES)
            pieces = [(piece.data.copy(), np.diff(piece.offsets)) for piece in written]
        lengths = np.concatenate([length for _, length in pieces])
        places[at] = begin + np.cumsum(lengths) - lengths
        sizes[at] = lengths
        begin += int(lengths.sum())
        data.extend(piece for piece, _ in pieces)
    return _gathered(np.concatenate(data), places, sizes)


def _gathered(data: Bytes, places: Int64s, sizes: Int64s) -> Bytes:
    out = np.empty(len(data), np.uint8)
    data.flags.writeable = False
    gather_bytes(data, places, sizes, out, np.empty(len(sizes) + 1, np.int64), np.empty(len(sizes), np.bool_))
    return out


def _writer(rows: Rows, events: Events) -> LineWriter:
    """Make the LineWriter that renders the lines of `events`, which must all belong to `rows`."""
    version, at = rows.version, events.at
    table = version.table
    visible = rows.columns
    new, old = rows.new_at[at], rows.old_at[at]
    names = f',"database":{quoted(version.database)},"table":{quoted(table.name)},"table_id":"{table.id}"'
    stamps = [
        LineColumn('","commit_ts":"', Form.INT, pa.array(events.commit_ts)),
        LineColumn('","start_ts":"', Form.INT, pa.array(events.start_ts)),
        LineColumn(f'"{names},"schema_version":"', Form.INT, pa.array(rows.schema_version[at])),
    ]
    groups = [
        LineGroup('{"type":"row","op":"', [LineColumn("", Form.RAW, _OPS)], events.op),
        LineGroup("", stamps),
        LineGroup('","key":', _key(table, rows.new), new, brackets=True, silent=True),
        LineGroup("", _key(table, rows.old), np.where(new < 0, old, -1), brackets=True, silent=True),
        LineGroup(',"row":', object_parts(visible, rows.new.columns) if rows.new else (), new, brackets=True),
        LineGroup(',"old_row":', object_parts(visible, rows.old.columns) if rows.old else (), old, brackets=True),
    ]
    return LineWriter(len(events), groups, "}\n")


def _key(table: Table, image: Image | None) -> Sequence[LineColumn]:
    if image is None:
        return ()
    if not table.key_columns:
        return [LineColumn('"_tidb_rowid":', Form.INT_TEXT, image.keys[0])]
    return object_parts(table.key_columns, image.keys)


def ddl_object(event: DdlEvent) -> dict[str, Any]:
    """Convert a DDL event to a JSON object."""
    return {
        "type": "ddl",
        "commit_ts": str(event.commit_ts),
        "database": event.database,
        "table": event.table,
        "query": event.query,
        "action": event.action,
        "schema_version": str(event.schema_version),
        "involved": [{"database": database, "table": table} for database, table in event.involved],
    }


def _ddl_line(event: DdlEvent) -> bytes:
    return orjson.dumps(ddl_object(event), option=orjson.OPT_APPEND_NEWLINE)
