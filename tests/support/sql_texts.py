"""Golden rows as SQL shows them: the text of each column, from our decoder, which agrees with TiDB's SELECT."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from support import golden
from tistream.decode.keys import int_handles
from tistream.decode.rows import decode_rows
from tistream.encode.cells import as_number
from tistream.encode.rows import record_prefix
from tistream.encode.table_encoding import KeyForm, TableEncoding
from tistream.schema.tidb import table as t
from tistream.schema.tidb.meta_key import decode_key
from tistream.schema.tidb.table import Column, Table, parse_table

SYSTEM_IDS, PUT = 111, 1


def golden_tables(name: str) -> Iterator[tuple[Table, int, Any, Any]]:
    """(table as last known, physical id, keys, values of its puts) of each user table of a golden set."""
    rows = golden.committed_rows(name)
    infos = [table for db in json.loads(golden.load(name).schema_snap.data)["databases"] for table in db["tables"]]
    for key, value in rows.filter(rows["op"] == PUT).sort("commit_ts").select("key", "value").iter_rows():
        meta = decode_key(key) if key[:1] == b"m" else None
        if meta is not None and (meta.field or b"").startswith(b"Table:"):
            infos.append(json.loads(value))
    for info in {info["id"]: info for info in infos if SYSTEM_IDS < info["id"] < 1 << 40}.values():
        table = parse_table(info)
        for physical_id in table.physical_ids:
            own = rows.filter((pl.col("op") == PUT) & pl.col("key").bin.starts_with(record_prefix(physical_id)))
            keys, values = own["key"].to_arrow(), own["value"].to_arrow()
            errors = decode_rows(table, table.visible_columns, keys, values).errors
            readable = [at for at in range(len(keys)) if at not in errors]
            if readable:
                yield table, physical_id, keys.take(pa.array(readable)), values.take(pa.array(readable))


def shown_texts(table: Table, keys: Any, values: Any) -> dict[int, Any]:
    """By column id, what SELECT shows of each row: large_binary, null for NULL."""
    columns = table.visible_columns
    batch = decode_rows(table, columns, keys, values).batch
    return {column.id: _shown(column, array) for column, array in zip(columns, batch.columns, strict=True)}


def key_texts(encoding: TableEncoding, keys: Any, texts: Mapping[int, Any]) -> Sequence[Any]:
    """What `encode_keys` takes."""
    if encoding.form is KeyForm.ROWID:
        handles, there = int_handles(keys)
        assert there.all()
        return [_bytes(pa.array(handles))]
    return [texts[column.id] for column in encoding.key]


def _bytes(array: Any) -> Any:
    return array.cast(pa.large_string()).cast(pa.large_binary())


def _shown(column: Column, array: Any) -> Any:
    if as_number(column) and column.tp != t.BIT:
        names = list(column.elems)
        if column.tp == t.ENUM:
            numbers = [
                None if one is None else names.index(one) + 1 if one in names else 0 for one in array.to_pylist()
            ]
        else:
            numbers = [
                None if one is None else sum(1 << names.index(x) for x in one.split(",") if x)
                for one in array.to_pylist()
            ]
        return _bytes(pa.array(numbers, pa.uint64()))
    if pa.types.is_floating(array.type):
        return pa.array(
            [
                None if one is None else repr(np.float32(one).item() if column.tp == t.FLOAT else one).encode()
                for one in array.to_pylist()
            ],
            pa.large_binary(),
        )
    if pa.types.is_large_binary(array.type):
        return array
    return _bytes(array)
