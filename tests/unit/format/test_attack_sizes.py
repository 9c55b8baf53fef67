"""A few bytes that claim to be very many: refused by what the footer says, before anything is unpacked."""
# Attack: footers of many megabytes; a thousand row groups; row groups and watermark rows above the limits

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from support import change_files
from support.tiny_tenant import TinyTenant, watermark
from tistream.errors import CorruptObject
from tistream.format import change_file
from tistream.storage import layout

TENANT = TinyTenant.tenant
KEY = layout.change_file(TENANT, 1, 9)


def parse(data: bytes, tail_bytes: int = 64 << 10) -> Any:
    return change_file.parse_footer(KEY, (TENANT, 1, 9), data[-tail_bytes:], len(data))


def equal_rows(count: int, row: dict[str, Any]) -> pa.Table:
    columns = []
    for column in change_files.SCHEMA:
        columns.append(pa.chunked_array([pa.array([row.get(column.name)] * 1000, column.type)] * (count // 1000)))
    return pa.table(columns, schema=change_files.SCHEMA)


def metadata(first_watermark: int) -> dict[str, str]:
    said = {"version": "1", "cluster_id": "7", "tenant_id": TENANT.tenant_id, "store_id": "1", "prev_ts": "0"}
    said |= {"old_value": "1", "first_watermark_row_group": str(first_watermark)}
    return {f"tistream.{name}": text for name, text in said.items()}


def test_a_footer_of_many_megabytes_is_not_even_fetched():
    data = b"PAR1" + bytes(100) + struct.pack("<I", 64 << 20) + b"PAR1"
    with pytest.raises(CorruptObject, match=f"a footer of .* no more than {change_file.FOOTER_BYTES_MAX}"):
        change_file.parse_footer(KEY, (TENANT, 1, 9), data, 200 << 20)


def test_a_thousand_row_groups_are_no_trouble():
    marks = change_files.table([watermark(1, 0, 5)])
    data = change_files.encode([marks] * 1000, metadata(0))
    assert len(parse(data, len(data)).groups) == 1000


def test_watermark_rows_are_bounded_over_all_row_groups(monkeypatch):
    monkeypatch.setattr(change_file, "WATERMARK_ROWS_MAX", 9_000)
    marks = equal_rows(5_000, watermark(1, 0, 5))
    parse(change_files.encode([marks], metadata(0)))
    with pytest.raises(CorruptObject, match="10000 watermark rows; no more than 9000"):
        parse(change_files.encode([marks, marks], metadata(0)))


@pytest.mark.parametrize(("limit", "told"), [("GROUP_ROWS_MAX", "5000 rows"), ("GROUP_BYTES_MAX", "unpacks to")])
def test_a_row_group_of_changes_is_bounded(monkeypatch, limit, told):
    change = {"type": 4, "op_type": 1, "region_id": 1, "region_version": 1, "key": b"k", "value": b"v" * 100}
    changes, marks = equal_rows(5_000, change), change_files.table([watermark(1, 0, 5)])
    data = change_files.encode([changes, marks], metadata(1))
    parse(data)
    monkeypatch.setattr(change_file, limit, 100)
    with pytest.raises(CorruptObject, match=f"row group 0: {told}"):
        parse(data)


def test_the_limits_are_far_from_what_writers_make():
    assert change_file.WATERMARK_ROWS_MAX >= 1_000_000
    assert change_file.GROUP_ROWS_MAX >= 100 * 65_536
    assert change_file.GROUP_BYTES_MAX >= 100 * (8 << 20)
