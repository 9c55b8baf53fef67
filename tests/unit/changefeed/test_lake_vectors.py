"""Vectors as lists of float32 in Iceberg tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from support import feed_tables
from tistream.schema.tidb import table as t
from tistream_changefeed.sinks.iceberg.field_types import converted


def test_vectors_with_the_longest_and_the_smallest_numbers_are_lists() -> None:
    of = feed_tables.version([feed_tables.column("v", t.VECTOR)], []).table.visible_columns[0]
    numbers = [1e20, -3.4028235e38, 1e-45, 3.2e-05, 0.1, -2.5]
    text = ",".join(np.format_float_positional(np.float32(one), trim="-") for one in numbers)
    found = converted(of, pa.array([f"[{text}]", None, "[]", "[1]"], pa.large_string()))
    assert found.type == pa.large_list(pa.float32())
    assert found.to_pylist() == [[float(np.float32(one)) for one in numbers], None, [], [1.0]]
    assert converted(of, pa.array([], pa.large_string())).to_pylist() == []
