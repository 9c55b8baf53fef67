"""What meta takes from a schema_snap, and how it refuses others."""

from __future__ import annotations

import pathlib

import orjson
import pytest

from tistream.errors import CorruptObject
from tistream_meta.tenants.snapshot import parse

GOLDEN = pathlib.Path(__file__).parents[2] / "data/golden/everything/objects/data_change_buffer/cluster-7/Tenant-acme"


def snap(**changes: object) -> bytes:
    partitions = {"partition": {"definitions": [{"id": 31}, {"id": 32}]}}
    databases = [
        {"db_info": {"id": 1}, "tables": [{"id": 30, **partitions}, {"id": 7}]},
        {"db_info": {"id": 2}, "tables": None},
    ]
    return orjson.dumps({"version": 1, "snapshot_ts": 42, "databases": databases, **changes})


def test_ids_of_tables_and_partitions():
    facts = parse("snap", snap())
    assert facts.snapshot_ts == 42
    assert facts.physical_ids == (7, 30, 31, 32)


def test_the_golden_snapshot():
    facts = parse("snap", (GOLDEN / "schema_snap").read_bytes())
    assert facts.snapshot_ts == 470596577375551488
    assert 281474976710654 in facts.physical_ids


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not valid JSON"),
        (snap()[:-3], "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "version None"),
        (snap(version=2), "version 2"),
        (snap(version=True), "version True"),
        (snap(snapshot_ts="42"), "snapshot_ts '42'"),
        (snap(snapshot_ts=0), "snapshot_ts 0"),
        (snap(snapshot_ts=2**63), "snapshot_ts"),
        (snap(databases=None), "malformed"),
        (snap(databases=[{}]), "malformed"),
        (snap(databases=[{"db_info": {"id": 1}, "tables": [{"id": -1}]}]), "table id -1"),
        (snap(databases=[{"db_info": {"id": 1}, "tables": [{"id": "x"}]}]), "table id 'x'"),
        (snap(databases=["x"]), "malformed"),
    ],
)
def test_anything_else_is_refused_with_its_reason(body, reason):
    with pytest.raises(CorruptObject, match=reason) as caught:
        parse("the/key", body)
    assert caught.value.key == "the/key"
