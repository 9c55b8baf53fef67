"""Reads from a tenant's schema_snap what the meta server needs: the ts at which the tenant starts, and the ids of its
tables. Pure. The schema registry reads the rest of the object (names, columns). With 100,000 tables the object has
hundreds of megabytes, and its writer may be hostile, so it is read piece by piece."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tistream.errors import CorruptObject
from tistream.schema.tidb.snapshot_cuts import cut_up

IDS_MAX = 2_000_000  # 100,000 tables of 20 partitions each


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """What the meta server needs from a schema_snap. `physical_ids` are the ids of all tables and partitions, including
    system schemas, in ascending order."""

    snapshot_ts: int
    physical_ids: tuple[int, ...]


def parse(key: str, body: bytes | Iterable[bytes]) -> SnapshotFacts:
    """Parse a schema_snap (design.md 2), given as a whole or in pieces. At most one table's description is in memory at
    a time. Raises CorruptObject, which names `key` and the problem."""
    ids = _Ids()
    snapshot_ts, databases = cut_up(key, (body,) if isinstance(body, bytes) else body, ids.take)
    try:
        found = np.unique(np.concatenate([np.empty(0, np.int64), *ids.of(databases)]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptObject(key, f"schema_snap's databases are malformed: {type(error).__name__}: {error}") from error
    return SnapshotFacts(snapshot_ts, tuple(found.tolist()))


class _Ids:
    """Collects the ids of all objects in a schema_snap that may be tables. The reader learns only later which of them
    are."""

    def __init__(self) -> None:
        self._ids = array("q")
        self._ends: list[int | str] = []  # of each object: where its ids end, or why it is not a table

    def take(self, table: Any) -> None:
        """Add one object of the JSON text. Raises ValueError if there are too many ids."""
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

    def of(self, databases: list[Any]) -> Iterator[npt.NDArray[np.int64]]:
        """Yield one array for each table of these databases: the table's id, then the ids of its partitions. In
        `databases`, `{"": n}` stands for the n-th object that `take` was given, counted from 0. Raises
        KeyError, TypeError or ValueError if a database, or an object that it uses as a table, is malformed."""
        starts, end = list[int](), 0
        for result in self._ends:
            starts.append(end)
            end = result if isinstance(result, int) else end
        ids = np.frombuffer(self._ids, np.int64)
        for database in databases:
            if not isinstance(database["db_info"]["id"], int):
                raise ValueError("a db_info without an id")
            for table in database["tables"] or ():
                part = table[""]  # each table was replaced by the number of its part
                result = self._ends[part]
                if isinstance(result, str):
                    raise ValueError(result)
                yield ids[starts[part] : result]


def _checked_id(table_id: object) -> int:
    if not isinstance(table_id, int) or isinstance(table_id, bool) or not 0 < table_id < 2**63:
        raise ValueError(f"table id {table_id!r}")
    return table_id
