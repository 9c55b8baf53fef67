"""An Iceberg table of a feed, as its worker has read or committed it last."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from tistream_changefeed.sinks.iceberg.marks import Marks
from tistream_changefeed.sinks.iceberg.table_schema import LakeSchema, Shape
from tistream_changefeed.sinks.iceberg.target import Identifier

FIELDS, SOURCE, TABLE_ID, DROPPED, SINCE = (
    f"tistream.{name}" for name in ("fields", "source", "table_id", "dropped_at", "since_ts")
)
"""Properties of a table. `since_ts`: the position of the feed when it created the table, whose rows came after it; 0 if
the feed has loaded the rows from before."""


@dataclass(slots=True)
class LakeTable:
    """An Iceberg table that a feed writes. `schema` is the one that its next commit gives it. `marks`: of its newest
    commit by a feed. `files` are in no snapshot yet."""

    identifier: Identifier
    shape: Shape
    table: Table
    table_id: int
    schema: LakeSchema
    marks: Marks | None
    evolves: bool = False
    files: list[DataFile] = field(default_factory=list)

    @property
    def loaded(self) -> bytes | None:
        """The raw key up to which the rows are there with which the feed begins, while they are loaded."""
        return None if self.marks is None else self.marks.loaded

    @property
    def through_ts(self) -> int:
        """The commit_ts up to which its rows are there."""
        return 0 if self.marks is None else self.marks.at.commit_ts


def shape_of(identifier: Identifier) -> Shape:
    """The shape of the table with this name."""
    return "changes" if identifier[-1].endswith("__changes") else "table"
