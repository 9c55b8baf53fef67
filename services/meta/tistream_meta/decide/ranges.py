"""Cuts the key space of a new tenant into ranges, one for each task. Pure and deterministic.

The keys of a tenant are `m…` (schema) and `t{table id}_r{handle}`, `t{table id}_i…` (tidb, tablecodec.go); ids and
integer handles are encoded so that bytes compare as numbers do. The cuts are spread over the table ids that exist and
some that will be created next. They lie alternately at table starts and inside tables, and with many ranges also inside
the `m` keys and the tables with reserved ids. Any byte string is a legal boundary, so a cut needs no existing key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tistream.model import raw_row
from tistream.model.span import KeySpan

RANGES_MAX = 4096
NEW_TABLES = 256  # TiDB hands out ids one by one, shared with databases and partitions

# Tables with fixed ids lie just below 2^48 (tidb, meta/metadef: ReservedGlobalIDUpperBound). They say nothing about
# where the ids of users' tables are.
RESERVED_FROM = 1 << 47
DDL_JOB_TABLE = 0x0000FFFFFFFFFFFE
_SIGN_BIT = 1 << 63


def cut(physical_ids: Sequence[int], count: int) -> tuple[KeySpan, ...]:
    """Cut the whole key space into exactly `count` (1..RANGES_MAX) non-empty spans, in key order. `physical_ids`: the
    ids of existing tables and partitions."""
    assert 1 <= count <= RANGES_MAX
    top = max((table_id for table_id in physical_ids if table_id < RESERVED_FROM), default=0) + NEW_TABLES
    bounds = _schema_bounds(top, count) + _reserved_bounds(count)
    bounds += _table_bounds(top, count - 1 - len(bounds))
    bounds.sort()
    assert len(set(bounds)) == count - 1
    return tuple(KeySpan(start, end) for start, end in zip([b"", *bounds], [*bounds, b""], strict=True))


def cut_raw(count: int) -> tuple[KeySpan, ...]:
    """Cut the whole key space into exactly `count` (1..RANGES_MAX) non-empty spans for a RawKV tenant. The cuts are
    even within keyspace 0, because the keys of a new tenant are not known."""
    assert 1 <= count <= RANGES_MAX
    bounds = [raw_row.prefix(0) + ((part << 16) // count).to_bytes(2, "big") for part in range(1, count)]
    return tuple(KeySpan(start, end) for start, end in zip([b"", *bounds], [*bounds, b""], strict=True))


def table_key(table_id: int) -> bytes:
    """The prefix of every key of a table or partition."""
    return b"t" + _comparable(table_id)


def row_key(table_id: int, handle: int) -> bytes:
    """The key of the row with this integer handle."""
    return table_key(table_id) + b"_r" + _comparable(handle)


def _comparable(number: int) -> bytes:
    return (number + _SIGN_BIT).to_bytes(8, "big")


def _schema_bounds(top: int, count: int) -> list[bytes]:
    """Cuts in the `m` keys: one at their end, and a sixteenth of `count` between the keys `DB:{id}` of databases. Ids
    of databases come from the same sequence as those of tables, and compare as text."""
    if count < 8:
        return []
    inside = (count - 1) // 16
    assert inside < NEW_TABLES <= top
    return [f"mDB:{id_}".encode() for id_ in _spread(top, inside)] + [b"n"]


def _spread(top: int, count: int) -> list[int]:
    """`count` ids, spread evenly over 1..top. They all differ if count <= top."""
    return [1 + (2 * index + 1) * top // (2 * count) for index in range(count)]


def _reserved_bounds(count: int) -> list[bytes]:
    if count < 16:
        return []
    return [table_key(DDL_JOB_TABLE)] + ([row_key(DDL_JOB_TABLE, 128)] if count >= 64 else [])


def _table_bounds(top: int, count: int) -> list[bytes]:
    """`count` cuts at ids spread evenly over 1..top, alternately at a table's start and inside its rows. Where an id
    gets several cuts, the first is its start and the others lie at growing handles."""
    ids = _spread(top, count)
    cuts = Counter(ids)
    seen = Counter[int]()
    bounds = []
    for index, table_id in enumerate(ids):
        nth = seen[table_id]
        seen[table_id] += 1
        if nth:
            bounds.append(row_key(table_id, nth * nth * 4))
        elif cuts[table_id] == 1 and index % 2:
            bounds.append(row_key(table_id, _handle(index)))
        else:
            bounds.append(table_key(table_id))
    return bounds


def _handle(index: int) -> int:
    """An integer handle at which a table is cut. The handle is low, because small tables have their rows there, and
    varies with `index`."""
    return 2 + (index * 7) % 61
