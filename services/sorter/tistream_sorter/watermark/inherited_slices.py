"""Derives the slices of a child task, and its waiting watermark rows, from its sealed parents. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tistream.format.manifest import Manifest
from tistream.model.span import KeySpan
from tistream_sorter.watermark.slice_arrays import SLICES
from tistream_sorter.watermark.slice_cuts import whole
from tistream_sorter.watermark.slices import SliceMap
from tistream_sorter.watermark.watermark_rows import Watermark, from_table, merge_rows, to_table


def inherited_slices(span: KeySpan, seals: Sequence[Manifest]) -> SliceMap:
    """The slices of `span`, and the waiting rows, from the `seals` of the parents, which are in key order and cover
    `span` together. A slice that was cut at the bound between two parents stays cut until a row arrives that covers
    both sides."""
    tables: list[pa.Table] = []
    waiting: list[Watermark] = []
    for seal in seals:
        mine = seal.span.clip(span)
        assert mine is not None
        assert seal.slices is not None
        assert seal.waiting is not None
        tables.append(_clipped(seal.slices, mine))
        pieces = ((row, KeySpan(row.start, row.end).clip(mine)) for row in from_table(seal.waiting))
        waiting += [row.clipped(piece.start, piece.end) for row, piece in pieces if piece is not None]
    return SliceMap.from_tables(span, pa.concat_tables(tables), to_table(merge_rows(waiting)))


def _clipped(slices: pa.Table, span: KeySpan) -> pa.Table:
    """Clip the rows of a table SLICES, which are in key order and without holes, to `span`."""
    starts = whole(slices, "start_key")
    first = max(_count(pc.less_equal(starts, pa.scalar(span.start, pa.binary()))) - 1, 0)
    beyond = _count(pc.less(starts, pa.scalar(span.end, pa.binary()))) if span.end else len(starts)
    inside = starts.slice(first + 1, beyond - first - 1)
    bounds = [pa.array([span.start], pa.binary()), inside, pa.array([span.end], pa.binary())]
    columns = {"start_key": pa.concat_arrays(bounds[:2]), "end_key": pa.concat_arrays(bounds[1:])}
    kept = slices.slice(first, beyond - first)
    return pa.table([columns.get(name, kept[name]) for name in SLICES.names], schema=SLICES)


def _count(which: pa.Array) -> int:
    return int(pc.sum(which).as_py() or 0)
