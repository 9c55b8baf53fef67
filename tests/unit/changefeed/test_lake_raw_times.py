"""Dates that no calendar has, in the column `_raw` of Iceberg tables."""

from __future__ import annotations

import json

import pyarrow as pa

from support import feed_tables
from tistream.schema.tidb import table as t
from tistream_changefeed.sinks.iceberg.field_types import raw_times


def test_columns_of_any_name_are_members_of_an_object() -> None:
    names = ["plain", 'a "b" \\ c', "tab\there", "line\nend", "größe"]
    shown = pa.array([None, None], pa.date32())
    columns = [
        (
            feed_tables.version([feed_tables.column(name, t.DATE)], []).table.visible_columns[0],
            pa.array([text, None]),
            shown,
        )
        for name, text in zip(names, ["0000-00-00"] * 5, strict=True)
    ]
    first, second = raw_times(columns, 2).to_pylist()
    assert json.loads(first) == dict.fromkeys(names, "0000-00-00")
    assert second is None
