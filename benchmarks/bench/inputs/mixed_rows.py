"""Real rows of a table of ten mixed columns, as many as wanted (mixed_rows.parquet: what TiDB wrote, its TableInfo).

Shapes: as they are; some columns NULL; without the last columns, as rows written before an ALTER TABLE are.
"""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from support.row_bytes import row_v2
from tistream.arrays import Int64s
from tistream.format.segment import OP_PUT, SCHEMA

FILE = Path(__file__).with_name("mixed_rows.parquet")
TABLE_ID = 116
COLUMNS = 10
NULLED, SHORTENED = 0.25, 0.2  # of the rows
STEP = 1 << 18  # of a TSO: one millisecond


@cache
def _metadata() -> dict[bytes, bytes]:
    return dict(pq.read_schema(FILE).metadata)


def table_info(table_id: int = TABLE_ID, name: str = "mixed_0") -> dict[str, Any]:
    """The TableInfo, of this id and name."""
    info: dict[str, Any] = json.loads(_metadata()[b"table_info"])
    return {**info, "id": table_id, "name": {"O": name, "L": name.lower()}}


def schema_snap(snapshot_ts: int, tables: int = 1) -> bytes:
    """A schema_snap with that many of these tables, their ids from TABLE_ID on."""
    db_info = json.loads(_metadata()[b"db_info"])
    infos = [table_info(TABLE_ID + at, f"mixed_{at}") for at in range(tables)]
    return json.dumps(
        {"version": 1, "snapshot_ts": snapshot_ts, "databases": [{"db_info": db_info, "tables": infos}]}
    ).encode()


@cache
def values() -> pa.Array:
    """Row values of every shape."""
    rng = random.Random(1)
    out = []
    for value in pq.read_table(FILE).column("value").to_pylist():
        cells = _cells(value)
        chance = rng.random()
        if chance < NULLED:
            cells |= dict.fromkeys(rng.sample(range(4, COLUMNS + 1), rng.randint(1, 3)))
        elif chance < NULLED + SHORTENED:
            cells = {id_: cells[id_] for id_ in sorted(cells)[: rng.randint(5, COLUMNS - 2)]}
        out.append(row_v2(cells))
    return pa.array(out, pa.binary())


def _cells(value: bytes) -> dict[int, bytes | None]:
    """The cells of a small row without NULLs, by column id."""
    count = int.from_bytes(value[2:4], "little")
    ids = value[6 : 6 + count]
    ends = np.frombuffer(value, "<u2", count, 6 + count)
    cells = value[6 + 3 * count :]
    return {id_: cells[start:end] for id_, start, end in zip(ids, [0, *ends.tolist()], ends.tolist(), strict=False)}


def committed(count: int, low_ts: int, *, updates: float = 0.0, tables: int = 1, seed: int = 1) -> pa.Table:
    """That many committed rows (segment.SCHEMA, in a segment's order), one a transaction and millisecond, of `tables`
    tables in turn; `updates` of them have an old row."""
    rng = np.random.default_rng(seed)
    number = np.arange(count)
    order = np.argsort(number % tables, kind="stable")
    one, other = (values().take(pa.array(rng.integers(0, len(values()), count))) for _ in range(2))
    table_id, commit_ts = TABLE_ID + (number % tables)[order], low_ts + STEP * (1 + number[order])
    return pa.table(
        [
            pa.array(table_id),
            pa.array(commit_ts),
            pa.array(commit_ts - STEP // 2),
            keys(table_id, 1 + number[order]),
            pa.array(np.full(count, OP_PUT, np.int8)),
            one,
            pc.if_else(pa.array(rng.random(count) < updates), other, None),
            pa.nulls(count, pa.int64()),
        ],
        schema=SCHEMA,
    )


def keys(table_ids: Int64s, handles: Int64s) -> pa.Array:
    """Record keys."""
    out = np.zeros((len(handles), 19), np.uint8)
    out[:, 0], out[:, 9], out[:, 10] = b"t"[0], b"_"[0], b"r"[0]
    for at, numbers in ((1, table_ids), (11, handles)):
        big_endian = (numbers.astype(np.uint64) ^ np.uint64(1 << 63)).astype(">u8")
        out[:, at : at + 8] = big_endian.view(np.uint8).reshape(-1, 8)
    offsets = np.arange(len(handles) + 1, dtype=np.int32) * 19
    return pa.Array.from_buffers(pa.binary(), len(handles), [None, pa.py_buffer(offsets), pa.py_buffer(out)])
