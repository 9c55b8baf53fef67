"""Encodes ranges of Raft logs as change files (design.md 2). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from tistream.format.change_file import SCHEMA, WATERMARK
from tistream.push.change_writer import GROUP_BYTES, GROUP_ROWS, FileIdentity, write_change_file
from tistream_upstream.tikv.regions import Entry, Range

_ENTRY_BYTES = 48  # size of an entry besides its key and values


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The maximum size of a row group of changes, in rows and in bytes."""

    rows: int = GROUP_ROWS
    bytes: int = GROUP_BYTES


def encode(identity: FileIdentity, ranges: Sequence[Range], limits: GroupLimits) -> bytes:
    """Encode a change file: the entries of all ranges, by region in log order, then their watermarks."""
    order: dict[int, int] = {}
    for one in ranges:
        order.setdefault(one.region_id, len(order))
    by_region = sorted(ranges, key=lambda one: order[one.region_id])  # the sort is stable, so log order is kept
    return write_change_file(identity, _change_groups(by_region, limits), _watermarks(by_region))


def _change_groups(ranges: Sequence[Range], limits: GroupLimits) -> Iterator[pa.Table]:
    """Make the tables of row groups within the limits. A group may have entries of several regions, and a region
    several groups."""
    pieces: list[tuple[Range, Sequence[Entry]]] = []
    rows = size = 0
    for one in ranges:
        entries = iter(one.entries)
        while True:
            piece: list[Entry] = []
            for entry in islice(entries, limits.rows - rows):
                piece.append(entry)
                size += _ENTRY_BYTES + len(entry.key) + len(entry.value or b"") + len(entry.old_value or b"")
                if size >= limits.bytes:
                    break
            if not piece:
                break
            pieces.append((one, piece))
            rows += len(piece)
            if rows >= limits.rows or size >= limits.bytes:
                yield _changes(pieces)
                pieces, rows, size = [], 0, 0
    if pieces:
        yield _changes(pieces)


def _changes(pieces: Sequence[tuple[Range, Sequence[Entry]]]) -> pa.Table:
    entries = [entry for _, piece in pieces for entry in piece]
    columns: dict[str, Any] = dict(zip(Entry._fields, zip(*entries, strict=True), strict=True))
    columns["region_id"] = [one.region_id for one, piece in pieces for _ in piece]
    columns["region_version"] = [one.version for one, piece in pieces for _ in piece]
    return _table(columns, len(entries))


def _watermarks(ranges: Sequence[Range]) -> pa.Table:
    count = len(ranges)
    columns: dict[str, Any] = {
        "type": [WATERMARK] * count,
        "op_type": [0] * count,
        "region_id": [one.region_id for one in ranges],
        "region_version": [one.version for one in ranges],
        "log_index": [one.last for one in ranges],
        "key": [one.span.start for one in ranges],
        "end_key": [one.span.end for one in ranges],
        "first_index": [one.first for one in ranges],
        "base_ts": [one.base_ts for one in ranges],
        "resolved_ts": [one.resolved_ts for one in ranges],
        "after": [[{"region_id": r, "log_index": i} for r, i in one.after] or None for one in ranges],
    }
    return _table(columns, count)


def _table(columns: dict[str, Any], rows: int) -> pa.Table:
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(rows, field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
