"""Reads row groups of runs (tistream.format.run), and their bounds."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tistream.errors import CorruptObject
from tistream.format.parquet_footer import ColumnChunk, RowGroup
from tistream.format.run import SCHEMA, RunRef
from tistream.pool import key_filter
from tistream.pool.footers import FooterCache
from tistream.pool.key_filter import KeyFilter
from tistream.pool.parquet_objects import OpenedObject, open_object, read_groups
from tistream.storage.object_store import ObjectStore
from tistream.storage.range_reader import fetch_ranges


@dataclass(frozen=True, slots=True)
class GroupBounds:
    """The bounds of one row group of a run, all inclusive. `decoded`: the estimated bytes of its values after
    decoding."""

    rows: int
    decoded: int
    first_key: bytes
    last_key: bytes
    commit_ts_min: int
    commit_ts_max: int


def open_run(objects: ObjectStore, run: RunRef, footers: FooterCache | None = None, before: int = 0) -> OpenedObject:
    """Read the footer of a run object, and about `before` bytes before it.

    Raises:
        NotFoundYet: garbage collection has deleted the object.
        CorruptObject: the object is damaged, or is not what its manifest states.
        Unavailable: the object store does not answer.
    """
    opened = open_object(objects, run, footers, before)
    rows = sum(group.rows for group in opened.footer.groups)
    if rows != run.rows:
        raise CorruptObject(run.key, f"has {rows} rows; its manifest states {run.rows}")
    return opened


def open_filtered_run(
    objects: ObjectStore, run: RunRef, footers: FooterCache | None = None
) -> tuple[OpenedObject, KeyFilter | None]:
    """Read the footer of a run object and the filter of its keys, in one request if the footer is not cached. The
    filter is None if the object is of a base run, has no filter, or has one of an unknown version. Raises the errors of
    open_run."""
    if run.low_ts is None:
        return open_run(objects, run, footers), None
    opened = open_run(objects, run, footers, key_filter.filter_bytes(run.rows))
    value = opened.footer.key_values.get(key_filter.NAME)
    try:
        stated = None if value is None else key_filter.parsed(value)
        if stated is None:
            return opened, None
        place = opened.footer.start - stated.size, stated.size
        if place[0] < 0:
            raise ValueError(f"{stated.size} bytes before a footer at {opened.footer.start}")
        source = fetch_ranges(objects, run.key, run.size, [place], opened.held)
        return opened, key_filter.checked(stated, bytes(source.view(*place)))
    except ValueError as error:
        raise CorruptObject(run.key, f"its filter of keys is damaged: {error}") from error


def group_bounds(run: RunRef, opened: OpenedObject) -> list[GroupBounds]:
    """The bounds of each row group, in file order. A row group with a very long key has no statistics of its keys; it
    gets the bounds of the whole object. Raises CorruptObject if a row group has no bounds of commit_ts."""
    return [_bounds(run, group) for group in opened.footer.groups]


def read_run_groups(
    objects: ObjectStore,
    run: RunRef,
    opened: OpenedObject,
    indexes: Sequence[int],
    columns: Collection[str] | None = None,
) -> pa.Table:
    """Read all rows of row groups, in the order of `indexes`, with `columns` in SCHEMA's order. Raises the errors of
    open_run."""
    return read_groups(objects, run, opened, indexes, columns, SCHEMA)


def read_run(objects: ObjectStore, run: RunRef, columns: Collection[str] | None = None) -> pa.Table:
    """Read all rows of an object of a run. Raises the errors of open_run."""
    opened = open_run(objects, run)
    return read_run_groups(objects, run, opened, range(len(opened.footer.groups)), columns)


def _bounds(run: RunRef, group: RowGroup) -> GroupBounds:
    chunks = {chunk.column: chunk for chunk in group.chunks}
    key = chunks["key"]
    first = run.first[1] if key.low is None or key.high is None else key.low
    last = run.last[1] if key.low is None or key.high is None else key.high
    return GroupBounds(group.rows, group.decoded, first, last, *_int_bounds(run, chunks["commit_ts"]))


def _int_bounds(run: RunRef, chunk: ColumnChunk) -> tuple[int, int]:
    if chunk.low is None or chunk.high is None:
        raise CorruptObject(run.key, "has a row group without the bounds of commit_ts")
    return struct.unpack("<q", chunk.low)[0], struct.unpack("<q", chunk.high)[0]
