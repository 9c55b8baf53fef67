"""Converts the table versions that decode rows to the answer of SignedChanges, and back. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import orjson

from tistream.read.row_events import Interval, Shapes
from tistream.schema.records import TableText
from tistream.schema.visible import StoredTable, TableVersion
from tistream.wire.signed import SchemaVersionFrom, ShownInterval, ShownTable, SignedChanges


def shown(shapes: Shapes) -> tuple[list[ShownTable], list[ShownInterval], list[SchemaVersionFrom]]:
    """The members `tables`, `intervals` and `schema_versions` of an answer. A table version that several intervals have
    is sent once."""
    tables: list[ShownTable] = []
    known: dict[int, int] = {}  # the place in `tables`, by id() of the version: equal versions are one object

    def place(version: TableVersion | None) -> int | None:
        if version is None:
            return None
        if id(version) not in known:
            known[id(version)] = len(tables)
            tables.append(
                ShownTable(database_id=str(version.database_id), database=version.database, info=version.stored.info())
            )
        return known[id(version)]

    intervals = [
        ShownInterval(table_id=str(one), low=str(each.low), high=str(each.high), table=place(each.version))
        for one, found in shapes.intervals.items()
        for each in found
    ]
    pairs = zip(shapes.version_ts.tolist(), shapes.versions.tolist(), strict=True)
    return tables, intervals, [SchemaVersionFrom(after_ts=str(ts), version=str(version)) for ts, version in pairs]


def shapes_of(answer: SignedChanges) -> Shapes:
    """The table versions that an answer states."""
    versions = [
        TableVersion(
            int(one.database_id), one.database, StoredTable(TableText.pack(orjson.dumps(one.info)), dict(one.info))
        )
        for one in answer.tables
    ]
    intervals: dict[int, list[Interval]] = {}
    for one in answer.intervals:
        version = None if one.table is None else versions[one.table]
        intervals.setdefault(int(one.table_id), []).append(Interval(int(one.low), int(one.high), version))
    return Shapes(
        intervals,
        frozenset(),
        _ints(int(one.after_ts) for one in answer.schema_versions),
        _ints(int(one.version) for one in answer.schema_versions),
    )


def _ints(values: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(list(values), np.int64)
