"""Selects rows as of a ts by an expression over their columns. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tistream.filters.event_choice import EventChoice
from tistream.model.span import KeySpan
from tistream.pool.versions.plan import TableRange, record_prefix
from tistream_api.points.table_rows import DecodedRows, Shape


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The rows of a table for which `where` is true, shown by `shape`."""

    choice: EventChoice
    shape: Shape

    @property
    def decoded(self) -> Shape:
        """The shape with which rows are decoded: it has the columns of `where`, too."""
        assert self.choice.where is not None
        used = self.choice.where.columns(self.shape.version.table)
        shown = self.shape.columns
        return replace(self.shape, columns=(*shown, *(column for column in used if column not in shown)))

    def narrowed(self, ranges: Sequence[TableRange]) -> list[TableRange]:
        """The parts of the ranges that may have rows for which `where` is true, in order."""
        handles = self.choice.keys(self.shape.version.table)
        if handles is None:
            return list(ranges)
        found = []
        for one in ranges:
            prefix = record_prefix(one.table_id)
            for some in handles:
                high = one.span.end if some.high is None else prefix + some.high
                part = one.clip(KeySpan(prefix + some.low, high))
                if part is not None:
                    found.append(part)
        return found

    def selected(self, rows: DecodedRows) -> DecodedRows:
        """Those of `rows` for which `where` is true, with the columns of `shape`. `rows` must have the columns of
        `decoded`."""
        table = self.shape.version.table
        kept = self.choice.true_of(table, rows.shape.columns, rows.columns, np.arange(len(rows)))
        chosen = rows if kept.all() else rows.take(np.flatnonzero(kept))
        return replace(chosen, shape=self.shape, columns=chosen.columns[: len(self.shape.columns)])
