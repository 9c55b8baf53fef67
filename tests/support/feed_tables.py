"""Tables and batches of row events written down by hand, for tests of what a changefeed does with them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tistream.decode.cells.kinds import arrow_type, kind_of
from tistream.schema.records import TableText
from tistream.schema.tidb import table as t
from tistream.schema.visible import StoredTable, TableVersion
from tistream_changefeed.rows.handle_key import handle_columns
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.window import EventWindow

Row = Mapping[str, Any]


def column(name: str, tp: int = t.LONGLONG, flag: int = 0, **kind: Any) -> dict[str, Any]:
    """One column of a TableInfo. `kind`: members of its type, such as Charset, Collate, Elems, Decimal."""
    text = {"Charset": "utf8mb4", "Collate": "utf8mb4_bin"} if tp in t.TEXTS else {"Charset": "binary"}
    return {"name": {"O": name, "L": name.lower()}, "type": {"Tp": tp, "Flag": flag, **text, **kind}}


@dataclass(frozen=True, slots=True)
class Key:
    """One index of a table."""

    name: str
    columns: tuple[str, ...]
    unique: bool = True
    primary: bool = False
    id: int = 1


def version(
    columns: Sequence[dict[str, Any]],
    keys: Sequence[Key] = (),
    *,
    name: str = "t",
    database: str = "d",
    table_id: int = 100,
    pk_is_handle: bool = False,
    partitions: Sequence[int] = (),
) -> TableVersion:
    """A version of a public table. `partitions`: their physical ids."""
    names = [one["name"]["O"] for one in columns]
    info = {
        "id": table_id,
        "name": {"O": name, "L": name.lower()},
        "state": t.STATE_PUBLIC,
        "pk_is_handle": pk_is_handle,
        "cols": [
            {"state": t.STATE_PUBLIC, "id": at + 1, **one, "offset": at, "version": 2} for at, one in enumerate(columns)
        ],
        "index_info": [
            {
                "id": key.id,
                "idx_name": {"O": key.name, "L": key.name.lower()},
                "idx_cols": [{"name": {"O": one}, "offset": names.index(one), "length": -1} for one in key.columns],
                "is_unique": key.unique,
                "is_primary": key.primary,
                "state": t.STATE_PUBLIC,
            }
            for key in keys
        ],
    }
    if partitions:
        info["partition"] = {"enable": True, "definitions": [{"id": one} for one in partitions]}
    return TableVersion(1, database, StoredTable(TableText.pack(json.dumps(info).encode()), info))


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a row: its old and new values by column; None: the side is absent."""

    old: Row | None
    new: Row | None
    commit_ts: int = 10
    start_ts: int = 9
    key: bytes = b"k"


def batch(
    of: TableVersion, changes: Sequence[Change], *, physical_id: int | None = None, first_at: int = 0
) -> RowBatch:
    """These changes of a table. Their places ascend from `first_at`. A column that a row lacks is NULL."""
    columns = of.table.visible_columns

    def side(rows: Sequence[Row | None]) -> list[pa.Array]:
        return [
            pa.array([None if row is None else row.get(one.name) for row in rows], arrow_type(kind_of(one)))
            for one in columns
        ]

    places = np.arange(len(changes))
    return RowBatch(
        version=of,
        physical_id=of.table.id if physical_id is None else physical_id,
        columns=columns,
        handle=handle_columns(of.table),
        new=side([one.new for one in changes]),
        old=side([one.old for one in changes]),
        new_at=np.where([one.new is not None for one in changes], places, -1),
        old_at=np.where([one.old is not None for one in changes], places, -1),
        commit_ts=np.array([one.commit_ts for one in changes], np.int64),
        start_ts=np.array([one.start_ts for one in changes], np.int64),
        schema_version=np.zeros(len(changes), np.int64),
        raw=pa.array([one.key for one in changes], pa.binary()),
        at=places + first_at,
    )


def rows_of(arrays: Sequence[pa.Array], at: int, batch_: RowBatch) -> dict[str, Any] | None:
    """Row `at` of one side of a batch; None: absent."""
    if at < 0:
        return None
    return {one.name: array[at].as_py() for one, array in zip(batch_.columns, arrays, strict=True)}


def changes_of(window: EventWindow) -> list[tuple[int, Change]]:
    """The row events of a window in order, each with its logical table id."""
    found = [
        (
            int(one.at[event]),
            one.version.head.id,
            Change(
                rows_of(one.old, int(one.old_at[event]), one),
                rows_of(one.new, int(one.new_at[event]), one),
                int(one.commit_ts[event]),
                int(one.start_ts[event]),
                one.raw[event].as_py(),
            ),
        )
        for one in window.rows
        for event in range(len(one))
    ]
    return [(table, change) for _, table, change in sorted(found, key=lambda one: one[0])]
