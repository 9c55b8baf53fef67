"""Joins the delete and the put of a row whose raw key has changed into one event. Pure. A row gets another raw key when
it moves to another partition, when it is deleted and inserted again in a table whose rows are stored by `_tidb_rowid`,
or when its table gets other physical ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Int64s
from tistream.decode import handle_bytes
from tistream.decode.row_compare import same_rows
from tistream.read.events import Image, Rows
from tistream.read.plan import OP_DELETE


def paired(sets: Sequence[Rows]) -> Rows:
    """Merge sets of events of one table version into one set. A delete and an insert of rows whose key columns have the
    same values become one update, whatever their raw keys; both are dropped if the row is the same."""
    one = _joined(sets)
    deletes, puts = np.flatnonzero(one.op == OP_DELETE), np.flatnonzero((one.op != OP_DELETE) & (one.old_at < 0))
    if not len(deletes) or not len(puts) or one.new is None or one.old is None:
        return one
    gone, come = key_texts(one, one.old, one.old_at[deletes]), key_texts(one, one.new, one.new_at[puts])
    match = pc.fill_null(pc.index_in(come, value_set=gone), -1).to_numpy(zero_copy_only=False)
    puts, match = puts[match >= 0], match[match >= 0]
    if not len(puts):
        return one
    old_at = one.old_at.copy()
    old_at[puts] = one.old_at[deletes[match]]
    keep = np.ones(len(one), np.bool_)
    keep[deletes[match]] = False
    sides = [
        [column.take(pa.array(at)) for column in image.columns]
        for image, at in ((one.new, one.new_at[puts]), (one.old, old_at[puts]))
    ]
    keep[puts[same_rows(sides[0], sides[1], np.arange(len(puts)))]] = False
    return chosen(replace(one, old_at=old_at), np.flatnonzero(keep))


def chosen(rows: Rows, at: Int64s) -> Rows:
    """The events of `rows` with the indexes `at`, in that order."""
    numbers: dict[str, Any] = {
        name: getattr(rows, name)[at] for name in ("commit_ts", "start_ts", "schema_version", "op", "new_at", "old_at")
    }
    return replace(rows, **numbers, raw=rows.raw.take(pa.array(at)))


def _joined(sets: Sequence[Rows]) -> Rows:
    if len(sets) == 1:
        return sets[0]
    new, new_at = _images([(one.new, one.new_at) for one in sets])
    old, old_at = _images([(one.old, one.old_at) for one in sets])
    numbers: dict[str, Any] = {
        name: np.concatenate([getattr(one, name) for one in sets])
        for name in ("commit_ts", "start_ts", "schema_version", "op")
    }
    raw = pa.concat_arrays([one.raw.cast(pa.binary()) for one in sets])
    return replace(sets[0], new=new, old=old, new_at=new_at, old_at=old_at, raw=raw, **numbers)


def _images(found: Sequence[tuple[Image | None, Int64s]]) -> tuple[Image | None, Int64s]:
    """Concatenate the row images (the old or the new rows) of several sets of events. `found` has for each set its
    image, None if it has no rows, and for each event the index of its row in the image; -1: no row. Returns the
    concatenated image, None if no set has one, and all indexes, as indexes in the result."""
    images = [image for image, _ in found if image is not None]
    at, begin = [], 0
    for image, places in found:
        at.append(np.where(places < 0, -1, places + begin))
        begin += 0 if image is None else len(image.keys[0])
    if not images:
        return None, np.concatenate(at)
    columns = [pa.concat_arrays(list(arrays)) for arrays in zip(*(one.columns for one in images), strict=True)]
    keys = [pa.concat_arrays(list(arrays)) for arrays in zip(*(one.keys for one in images), strict=True)]
    return Image(columns, keys), np.concatenate(at)


def key_texts(rows: Rows, image: Image, at: Int64s) -> Any:
    """The keys, as events show them, of the rows of `image` (the old or the new rows of these events) with the indexes
    `at`, as text in the form of handle_bytes.key_text. In a table without a key they are the integers of
    `_tidb_rowid`."""
    keys = [one.take(pa.array(at)) for one in image.keys]
    columns = rows.version.table.key_columns
    if not columns:
        return keys[0]
    return handle_bytes.key_texts(columns, keys)
