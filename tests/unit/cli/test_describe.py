from __future__ import annotations

import json

import pyarrow as pa
import pytest

from support import golden
from tistream.errors import CorruptObject
from tistream.format import manifest
from tistream.format.manifest import ChainPosition, Manifest
from tistream.format.segment import SCHEMA, RowGroupInfo, SegmentRef
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.pool.writer import write_segment
from tistream_cli.commands.describe import describe, to_json
from tistream_client.cli.errors import CliError

TENANT = TenantKey("7", "acme")


def test_change_file() -> None:
    file = next(file for file in golden.load("everything").files if len(file.data) > 8_000)
    found = describe(file.key, file.data, 3)
    assert found.kind == "change file"
    assert found.facts["tistream.tenant_id"] == "acme"
    groups, rows = found.sheets
    assert groups.title == "row groups"
    assert len(rows.rows) == 3
    assert rows.total == found.facts["rows"] > 3
    assert rows.rows[0][rows.columns.index("type")] in ("PREWRITE", "COMMIT", "COMMITTED", "ROLLBACK")


def test_schema_snap() -> None:
    snap = golden.load("everything").schema_snap
    found = describe(snap.key, snap.data, 20)
    assert found.kind == "schema_snap"
    assert "mysql" in [row[0] for row in found.sheets[0].rows]


def test_segment() -> None:
    row = {"table_id": 104, "commit_ts": 9, "start_ts": 8, "key": b"t\x80", "op": 1, "value": b"\xff"}
    data, _ = write_segment(pa.Table.from_pylist([row], schema=SCHEMA), "segment")
    found = describe("segment", data, 20)
    assert found.kind == "segment"
    [shown] = to_json(found)["tables"]["rows"]["rows"]
    assert (shown["op"], shown["key"], shown["value"], shown["old_value"]) == ("put", "7480", "ff", None)


def test_manifest() -> None:
    segment = SegmentRef("committed/x", 10, "00000000", 5, (RowGroupInfo(5, 1, 2, 3, 4),))
    data = manifest.encode(
        Manifest(
            TENANT, 3, 12, 4, "ab", "tick", KeySpan(b"t", b""), 1, 4, (segment,), positions={2: (ChainPosition(5, 9),)}
        )
    )
    found = to_json(describe("m", data, 20))
    assert found["facts"]["window"] == "(1, 4]"
    assert found["facts"]["span"] == "[74, +inf)"
    assert found["facts"]["positions"] == {"2": ["5..9"]}
    assert found["tables"]["segments"]["rows"][0]["commit_ts"] == "3..4"
    json.dumps(found)


def test_damage_names_the_object() -> None:
    data = manifest.encode(Manifest(TENANT, 3, 12, 4, "ab", "tick", KeySpan(b"t", b""), 1, 4))
    with pytest.raises(CorruptObject, match=r"some/key: manifest fails its CRC-32"):
        describe("some/key", data[:-1] + b"\x00", 20)


@pytest.mark.parametrize("data", [b"", b"plain text", b"PAR1 but no Parquet", b'{"no": "end"'])
def test_what_is_nothing_we_know(data: bytes) -> None:
    with pytest.raises(CliError, match="x/y"):
        describe("x/y", data, 20)
