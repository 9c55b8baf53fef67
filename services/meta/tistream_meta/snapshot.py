"""What the meta server takes from a tenant's schema_snap: where the tenant starts, and which table ids exist.

Pure. The rest of the object (names, columns) is the schema registry's. With 100,000 tables it has hundreds of
megabytes, and whoever writes it may be hostile: so it is read piece by piece.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from tistream.errors import CorruptObject
from tistream.model.ts import MAX_TS
from tistream.schema.snapshot_cuts import AT_ONCE, Cutter

VERSION = 1
IDS_MAX = 2_000_000  # 100,000 tables of 20 partitions each


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """`physical_ids`: of every table and partition, the system schemas' included; ascending."""

    snapshot_ts: int
    physical_ids: tuple[int, ...]


def parse(key: str, body: bytes) -> SnapshotFacts:
    """Read a schema_snap (design.md 2). Raises CorruptObject naming `key` and what is wrong."""
    reader = SnapshotReader(key)
    reader.feed(body)
    return reader.facts()


class SnapshotReader:
    """Reads one piece by piece: no more than one table's description is held. Raises CorruptObject, as `parse`."""

    def __init__(self, key: str) -> None:
        self._key, self._cutter = key, Cutter()
        self._ids = array("q")  # of all parts that may be tables
        self._ends: list[int | str] = []  # of each part: where its ids end, or why it is no table

    def feed(self, data: bytes) -> None:
        """The bytes that follow."""
        try:
            for at in range(0, len(data), AT_ONCE):
                for part in self._cutter.feed(data[at : at + AT_ONCE]):
                    self._take(orjson.loads(part))
        except orjson.JSONDecodeError as error:
            raise CorruptObject(self._key, f"schema_snap is no JSON: {error}") from error
        except ValueError as error:
            raise CorruptObject(self._key, str(error)) from error

    def _take(self, table: dict[str, Any]) -> None:
        try:
            ids = [_checked_id(table["id"])]
            for partition in (table.get("partition") or {}).get("definitions") or ():
                ids.append(_checked_id(partition["id"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self._ends.append(f"{type(error).__name__}: {str(error)[:200]}")
            return
        self._ids.extend(ids)
        self._ends.append(len(self._ids))
        if len(self._ids) > IDS_MAX:
            raise ValueError(f"schema_snap has more than {IDS_MAX} tables and partitions; no more are read")

    def facts(self) -> SnapshotFacts:
        """What it says, once all was fed."""
        key = self._key
        try:
            data = orjson.loads(self._cutter.end())
        except orjson.JSONDecodeError as error:
            raise CorruptObject(key, f"schema_snap is no JSON: {error}") from error
        except ValueError as error:
            raise CorruptObject(key, str(error)) from error
        if not isinstance(data, dict):
            raise CorruptObject(key, "schema_snap is no JSON object")
        if data.get("version") != VERSION or isinstance(data["version"], bool):
            raise CorruptObject(key, f"schema_snap version {data.get('version')!r}; this program knows {VERSION}")
        snapshot_ts = data.get("snapshot_ts")
        if not isinstance(snapshot_ts, int) or isinstance(snapshot_ts, bool) or not 0 < snapshot_ts <= MAX_TS:
            raise CorruptObject(key, f"schema_snap's snapshot_ts {snapshot_ts!r} is no timestamp")
        try:
            ids = np.unique(np.concatenate([np.empty(0, np.int64), *self._physical_ids(data["databases"])]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptObject(
                key, f"schema_snap's databases are malformed: {type(error).__name__}: {error}"
            ) from error
        return SnapshotFacts(snapshot_ts, tuple(ids.tolist()))

    def _physical_ids(self, databases: list[dict[str, Any]]) -> Iterator[npt.NDArray[np.int64]]:
        starts, end = list[int](), 0
        for told in self._ends:
            starts.append(end)
            end = told if isinstance(told, int) else end
        ids = np.frombuffer(self._ids, np.int64)
        for database in databases:
            if not isinstance(database["db_info"]["id"], int):
                raise ValueError("a db_info without an id")
            for table in database["tables"] or ():
                part = table[""]  # every object there is one of the cutter's
                told = self._ends[part]
                if isinstance(told, str):
                    raise ValueError(told)
                yield ids[starts[part] : told]


def _checked_id(table_id: object) -> int:
    if not isinstance(table_id, int) or isinstance(table_id, bool) or not 0 < table_id < 2**63:
        raise ValueError(f"table id {table_id!r}")
    return table_id
