"""A small sound change file of one store, and its rows, to be altered by tests."""

from __future__ import annotations

from typing import Any

from support import change_files
from tistream.model.ids import TenantKey
from tistream.storage import layout

TENANT = TenantKey("7", "acme")
TS = 1000
IDENTITY = (TENANT, 4, TS)
KEY = layout.change_file(TENANT, 4, TS)


def change(key: bytes, **more: Any) -> dict[str, Any]:
    return {
        "type": 1,
        "op_type": 1,
        "region_id": 9,
        "region_version": 2,
        "log_index": 70,
        "key": key,
        "value": b"v" + key,
        "start_ts": 500,
        **more,
    }


def watermark(**more: Any) -> dict[str, Any]:
    return {
        "type": 100,
        "op_type": 0,
        "region_id": 9,
        "region_version": 2,
        "log_index": 80,
        "first_index": 60,
        "key": b"a",
        "end_key": b"z",
        "resolved_ts": 900,
        **more,
    }


CHANGES = [change(b"k%02d" % number) for number in range(10)]


def sound(**more: Any) -> bytes:
    arguments: dict[str, Any] = {"changes": CHANGES, "watermarks": [watermark()], "rows_per_group": 4, **more}
    return change_files.change_file("7", "acme", 4, 999, **arguments)
