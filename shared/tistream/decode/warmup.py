"""Compiles the kernels by decoding rows of a table that has a column of each kind, and by rendering a line."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tistream.decode.footers import use_compiled
from tistream.decode.json_lines import LineColumn, LineGroup, LineWriter
from tistream.decode.json_text import render_objects
from tistream.decode.kernels.render_kernel import Form
from tistream.decode.row_compare import same_rows
from tistream.decode.rows import decode_rows
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import parse_table

_NUMBERS = (t.LONGLONG, t.FLOAT, t.DOUBLE, t.DECIMAL, t.DATETIME, t.DURATION)
_BYTES = (t.ENUM, t.SET, t.VARCHAR, t.BLOB, t.JSON, t.VECTOR)
_KEY = b"t" + bytes([0x80, 0, 0, 0, 0, 0, 0, 1]) + b"_r" + bytes([3, 0x80, 0, 0, 0, 0, 0, 0, 1])
_EMPTY_ROW = bytes([0x80, 0, 0, 0, 0, 0])
_TEXT_ROW = bytes([0x80, 0, 1, 0, 0, 0, 9, 2, 0, 0xC3, 0xA9])


def warm_kernels() -> None:
    """Compile every kernel that decodes rows or parses footers, and `render_plain`, or load them from the cache on
    disk. From then on, this process parses footers by compiled code."""
    use_compiled()
    columns = [
        {
            "id": number,
            "name": {"O": f"c{number}", "L": f"c{number}"},
            "offset": number - 1,
            "type": {"Tp": tp, "Charset": "binary" if tp == t.BLOB else "utf8mb4", "Elems": ["a"]},
            "state": t.STATE_PUBLIC,
        }
        for number, tp in enumerate((*_NUMBERS, *_BYTES), 1)
    ]
    primary = {"id": 1, "idx_name": {"O": "p", "L": "p"}, "idx_cols": [{"name": {"O": "c1"}, "offset": 0}],
               "is_primary": True, "state": t.STATE_PUBLIC}  # fmt: skip
    table = parse_table(
        {"id": 1, "name": {"O": "t", "L": "t"}, "cols": columns, "index_info": [primary], "is_common_handle": True}
    )
    keys = pa.array([_KEY, _KEY], pa.binary())
    decoded = decode_rows(table, table.columns, keys, pa.array([_EMPTY_ROW, _TEXT_ROW], pa.binary()))
    render_objects(table.columns, decoded.batch)
    same_rows(decoded.batch.columns, decoded.batch.columns, np.arange(len(keys)))


def warm_message_kernel() -> None:
    """Compile the kernel `render_rich`, which writes messages of changefeeds, or load it from the cache on disk."""
    number = LineColumn("", Form.GO_DOUBLE, pa.array([0.5], pa.float64()))
    LineWriter(1, [LineGroup("", [number])], "").lines()
