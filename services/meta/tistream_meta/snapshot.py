"""What the meta server takes from a tenant's schema_snap: where the tenant starts, and which table ids exist.

Pure. The rest of the object (names, columns) is the schema registry's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from tistream.errors import CorruptObject
from tistream.model.ts import MAX_TS

VERSION = 1


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """`physical_ids`: of every table and partition, the system schemas' included; ascending."""

    snapshot_ts: int
    physical_ids: tuple[int, ...]


def parse(key: str, body: bytes) -> SnapshotFacts:
    """Read a schema_snap (design.md 2). Raises CorruptObject naming `key` and what is wrong."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise CorruptObject(key, f"schema_snap is no JSON: {error}") from error
    if not isinstance(data, dict):
        raise CorruptObject(key, "schema_snap is no JSON object")
    if data.get("version") != VERSION or isinstance(data["version"], bool):
        raise CorruptObject(key, f"schema_snap version {data.get('version')!r}; this program knows {VERSION}")
    snapshot_ts = data.get("snapshot_ts")
    if not isinstance(snapshot_ts, int) or isinstance(snapshot_ts, bool) or not 0 < snapshot_ts <= MAX_TS:
        raise CorruptObject(key, f"schema_snap's snapshot_ts {snapshot_ts!r} is no timestamp")
    try:
        ids = sorted(set(_physical_ids(data["databases"])))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptObject(key, f"schema_snap's databases are malformed: {type(error).__name__}: {error}") from error
    return SnapshotFacts(snapshot_ts, tuple(ids))


def _physical_ids(databases: list[dict[str, Any]]) -> Iterator[int]:
    for database in databases:
        if not isinstance(database["db_info"]["id"], int):
            raise ValueError("a db_info without an id")
        for table in database["tables"] or ():
            yield _checked_id(table["id"])
            for partition in (table.get("partition") or {}).get("definitions") or ():
                yield _checked_id(partition["id"])


def _checked_id(table_id: object) -> int:
    if not isinstance(table_id, int) or isinstance(table_id, bool) or not 0 < table_id < 2**63:
        raise ValueError(f"table id {table_id!r}")
    return table_id
