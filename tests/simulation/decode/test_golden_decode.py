"""Every row that a real TiDB showed, decoded from its own bytes, against its own SELECT."""

from __future__ import annotations

import bisect
import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from support import golden
from support.sql_values import from_json, from_text
from tistream.decode.json_text import render_objects
from tistream.decode.keys import is_record_key, table_ids
from tistream.decode.rows import decode_rows
from tistream.schema.tidb.meta_key import decode_key
from tistream.schema.tidb.table import Table, parse_table


@dataclass(frozen=True)
class Committed:
    """The record puts of one table (by name) at one commit_ts, decoded."""

    columns: tuple[str, ...]
    images: tuple[tuple[Any, Any], ...]  # (row, old row or None), values as events print them


def table_versions(rows: pl.DataFrame, snap: bytes) -> dict[int, list[tuple[int, Table]]]:
    """By physical id: (commit_ts, version), oldest first."""
    out: dict[int, list[tuple[int, Table]]] = defaultdict(list)
    for database in json.loads(snap)["databases"]:
        for info in database["tables"]:
            table = parse_table(info)
            for physical in table.physical_ids:
                out[physical].append((0, table))
    for key, op, value, commit_ts in rows.select("key", "op", "value", "commit_ts").iter_rows():
        if key[:1] == b"m" and op == 1:
            name = decode_key(key)
            if name is not None and name.field is not None and name.field.startswith(b"Table:"):
                table = parse_table(json.loads(value))
                for physical in table.physical_ids:
                    out[physical].append((commit_ts, table))
    return out


def decode_group(table: Table, group: pl.DataFrame) -> list[tuple[Any, Any]]:
    columns = table.visible_columns
    keys, sides = group["key"].to_arrow(), []
    for side in ("value", "old_value"):
        values = group[side].to_arrow()
        present = [value.is_valid for value in values]
        at = [place for place, there in enumerate(present) if there]
        decoded = decode_rows(table, columns, keys.take(pa.array(at, pa.int64())), values.drop_null())
        assert decoded.errors == {}, (table.name, decoded.errors)
        texts = iter(render_objects(columns, decoded.batch).to_pylist())
        sides.append([tuple(json.loads(next(texts)).values()) if there else None for there in present])
    return list(zip(*sides, strict=True))


def decode_all(name: str) -> dict[tuple[int, str], list[Committed]]:
    """By (commit_ts, table name)."""
    data = golden.load(name)
    rows = golden.committed_rows(data.name)
    versions = table_versions(rows, data.schema_snap.data)
    keys = rows["key"].to_arrow()
    records = rows.with_columns(pl.Series("table_id", table_ids(keys))).filter(pl.Series(is_record_key(keys)))
    out: dict[tuple[int, str], list[Committed]] = defaultdict(list)
    grouped: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, (table_id, commit_ts) in enumerate(records.select("table_id", "commit_ts").iter_rows()):
        grouped[table_id, commit_ts].append(place)
    for (table_id, commit_ts), places in grouped.items():
        known = versions.get(table_id, [])
        at = bisect.bisect_left(known, commit_ts, key=lambda version: version[0]) - 1
        if at >= 0:
            table = known[at][1]
            images = decode_group(table, records[places])
            columns = tuple(column.name for column in table.visible_columns)
            out[commit_ts, table.name].append(Committed(columns, tuple(images)))
    return out


def canonical(types: list[str], row: Any, convert: Any) -> tuple[Any, ...]:
    return tuple(convert(sql_type, value) for sql_type, value in zip(types, row, strict=True))


@pytest.mark.parametrize(("name", "rows"), [("everything", 12_496), ("large", 24_325)])
def test_every_row_of_a_real_tidb_is_what_select_shows(name: str, rows: int) -> None:
    decoded = decode_all(name)
    columns = golden.expected(name, "columns")
    compared = 0
    for entry in golden.expected(name, "rows"):
        for change in entry["tables"]:
            shape = columns[change["columns"]]
            names = tuple(column["name"] for column in shape["columns"])
            types = [column["type"] for column in shape["columns"]]
            commits = [c for c in decoded.get((int(entry["commit_ts"]), shape["table"]), []) if c.columns == names]
            assert commits, (entry["commit_ts"], shape["table"])
            images = [image for commit in commits for image in commit.images]
            ours = Counter[Any]()
            for row, old in images:
                new_form = None if row is None else canonical(types, row, from_json)
                old_form = None if old is None else canonical(types, old, from_json)
                if new_form != old_form:
                    ours[new_form] += 1
                    ours[("removed", old_form)] += 1
            added = Counter(canonical(types, row, from_text) for row in change["added"])
            removed = Counter(("removed", canonical(types, row, from_text)) for row in change["removed"])
            theirs = added + removed
            missing = theirs - ours
            assert not missing, (entry["commit_ts"], shape["table"], missing, ours)
            compared += sum(theirs.values())
    assert compared == rows
