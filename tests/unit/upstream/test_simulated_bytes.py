"""Keys, rows and schema JSON of a simulated cluster are those of a TiDB: our decoder reads them back, and the golden
sets' own values encode to the golden sets' own bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from support import golden
from tistream.decode.json_text import render_objects
from tistream.decode.rows import decode_rows
from tistream.encode.json_binary import json_cell
from tistream.schema.tidb.meta_key import decode_key
from tistream.schema.tidb.row_cell import read_bytes_cell
from tistream.schema.tidb.table import Table, parse_table
from tistream_upstream.schema import codec, system_tables
from tistream_upstream.schema.catalog import Catalog, draw
from tistream_upstream.schema.columns import KINDS
from tistream_upstream.schema.layout import COMMON_HANDLE, HANDLES, INT_HANDLE, Column, Layout, Row

Json = dict[str, Any]
SYSTEM_IDS = 111


def decoded(table: Table, keys: list[bytes], values: list[bytes]) -> list[Json]:
    rows = decode_rows(table, table.visible_columns, pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    assert rows.errors == {}
    return [json.loads(text) for text in render_objects(table.visible_columns, rows.batch).to_pylist()]


@pytest.mark.parametrize("handle", HANDLES)
def test_our_decoder_reads_every_kind_of_column(handle: str) -> None:
    rng = random.Random(handle)
    table = Catalog(rng).make_table(1, "t", handle, len(KINDS), indexed=True)
    rows, keys = [], []
    for stamp in range(200):
        key, shown, cells = table.new_key()
        keys.append(key)
        rows.append(Row(table.layout, shown, draw(table.layout, rng, cells, stamp)))
    parsed = parse_table(json.loads(json.dumps(table.info())))
    assert {column.kind.sql for column in table.layout.columns} >= {kind.sql for kind in KINDS.values()}
    found = decoded(parsed, keys, [row.value for row in rows])
    assert found == [json.loads(row.shown(table.layout)) for row in rows]
    assert any(value is None for row in found for value in row.values())
    if handle in (INT_HANDLE, COMMON_HANDLE):
        names = [column.name for column in parsed.key_columns]
        assert [json.loads(row.key) for row in rows] == [{name: row[name] for name in names} for row in found]


def test_wide_rows_and_high_column_ids_are_read() -> None:
    columns = [Column(1, "id", KINDS["bigint"], not_null=True, primary=True)]
    columns += [Column(number, f"c{number}", KINDS["text"]) for number in range(250, 270)]
    pool = {c.id: ((b"x" * 9_000, b'"%s"' % (b"x" * 9_000)), (None, b"null")) for c in columns[1:]}
    layout = Layout(7, INT_HANDLE, columns, pool)
    rng = random.Random(1)
    rows = [Row(layout, b"", draw(layout, rng, ((b"", b'"5"'),), 0)) for _ in range(20)]
    wide = [Row(layout, b"", ((b"", b'"5"'), *[pool[c.id][0] for c in columns[1:]]))]
    from tistream_upstream.schema import table_info

    cols, indexes = table_info.of_columns(columns, None, INT_HANDLE)
    parsed = parse_table(table_info.table_info(7, "t", cols, indexes, handle=INT_HANDLE))
    values = [row.value for row in rows + wide]
    assert decoded(parsed, [codec.record_key(7, 5)] * 21, values) == [json.loads(r.shown(layout)) for r in rows + wide]


def test_golden_rows_encode_to_their_own_bytes() -> None:
    """Real rows of a TiDB: what our decoder says of them gives the same bytes again."""
    loaded = golden.load("large")
    rows = golden.committed_rows(loaded.name)
    again = 0
    for table, keys, values in golden_tables("large", rows):
        shown = decoded(table, keys, values)
        for row, value in zip(shown, values, strict=True):
            cells = [(c.id, cell(c.tp, c, row[c.name])) for c in table.visible_columns if c not in table.handle_columns]
            if int.from_bytes(value[2:4], "little") + int.from_bytes(value[4:6], "little") == len(cells):
                assert codec.row_v2(sorted(cells)) == value, row  # else it was written before a column came
                again += 1
    assert again > 200


def golden_tables(name: str, rows: pl.DataFrame) -> Iterator[tuple[Table, list[bytes], list[bytes]]]:
    """Every user table of a golden set (as last known), and its put rows. System tables are of row format v1."""
    infos = [table for db in json.loads(golden.load(name).schema_snap.data)["databases"] for table in db["tables"]]
    for key, value in rows.filter(rows["op"] == 1).select("key", "value").iter_rows():
        meta = decode_key(key) if key[:1] == b"m" else None
        if meta is not None and (meta.field or b"").startswith(b"Table:"):
            infos.append(json.loads(value))
    for info in {info["id"]: info for info in infos if SYSTEM_IDS < info["id"] < 1 << 40}.values():
        prefix = codec.table_prefix(info["id"]) + b"_r"
        own = rows.filter((rows["op"] == 1) & rows["key"].bin.starts_with(prefix))
        if own.height:
            yield parse_table(info), own["key"].to_list(), own["value"].to_list()


def codec_text(value: str) -> bytes:
    return value.encode()


def cell(tp: int, column: Any, value: Any) -> bytes | None:
    """A cell from what the API shows."""
    by_type = {
        1: lambda: codec.int_cell(value), 2: lambda: codec.int_cell(value), 3: lambda: codec.int_cell(value),
        8: lambda: codec.int_cell(int(value)), 5: lambda: codec.float_cell(value), 15: lambda: codec_text(value),
        12: lambda: codec.time_cell(datetime.fromisoformat(value)),
        7: lambda: codec.time_cell(datetime.fromisoformat(value)),
        0xF5: lambda: json_cell(value),
        0xF6: lambda: codec.decimal_cell(Decimal(value), column.flen, column.decimal),
        0xF7: lambda: codec.uint_cell(column.elems.index(value) + 1),
    }  # fmt: skip
    return None if value is None else by_type[tp]()


def test_jobs_are_stored_as_golden_ones_are() -> None:
    loaded = golden.load("everything")
    rows = golden.committed_rows(loaded.name)
    prefix = codec.table_prefix(system_tables.DDL_JOB) + b"_r"
    jobs = rows.filter((rows["op"] == 1) & rows["key"].bin.starts_with(prefix))
    same = 0
    for key, value in jobs.select("key", "value").iter_rows():
        text = read_bytes_cell(value, 5)
        assert text is not None
        job = json.loads(text)
        assert key == codec.record_key(system_tables.DDL_JOB, job["id"])
        ids = [int(one) for one in (read_bytes_cell(value, 4) or b"").split(b",")]
        if job["type"] in (1, 3, 4, 5, 6, 11, 14) and b"," not in (read_bytes_cell(value, 3) or b""):
            same += system_tables.ddl_job(text, job["schema_id"], ids, job["type"]) == value
    assert same > 50


def test_schema_json_has_the_members_of_tidbs() -> None:
    loaded = golden.load("everything")
    rows = golden.committed_rows(loaded.name).filter(pl.col("op") == 1)
    by_name: dict[bytes, Any] = {}
    for key, value in rows.select("key", "value").iter_rows():
        meta = decode_key(key) if key[:1] == b"m" else None
        if meta is not None:
            by_name[(meta.key if meta.field is None else meta.field)[:5]] = value
    real = json.loads(by_name[b"Table"])
    table = Catalog(random.Random(1)).make_table(1, "t", COMMON_HANDLE, 4, indexed=True)
    ours = table.info()
    assert list(ours) == list(real)
    assert list(ours["cols"][0]) == list(real["cols"][0])
    assert list(ours["cols"][0]["type"]) == list(real["cols"][0]["type"])
    indexed = next(json.loads(v) for v in rows["value"] if v[:6] == b'{"id":' and b'"is_primary":true' in v)
    known = indexed.get("index_info") or indexed["binlog"]["TableInfo"]["index_info"]
    assert list(ours["index_info"][0]) == list(known[0])
