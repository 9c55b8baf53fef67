"""An Iceberg table of a feed, as its worker has read or committed it last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from tistream.model.ids import TenantKey
from tistream_changefeed.sinks.iceberg.marks import CURSOR, Marks
from tistream_changefeed.sinks.iceberg.table_schema import LakeSchema, Shape
from tistream_changefeed.sinks.iceberg.target import Identifier

FIELDS, SOURCE, TABLE_ID, DROPPED, SINCE, NEXT, MADE, WHOLE = (
    f"tistream.{name}"
    for name in ("fields", "source", "table_id", "dropped_at", "since_ts", "next_version", "version_ts", "whole_at")
)
DELTA, BASE, KEYS, MERGED, NOW, TAKEN = (
    f"tistream.{name}" for name in ("delta", "base", "keys", "merged", "now", "taken")
)
"""Properties of a table. `since_ts`: the commit_ts of the DDL for which the feed created the table, or the position of
the feed when it created the table for rows. The table has only rows from after it. 0 if the feed has loaded the rows
from before. `next_version`: the name of the Iceberg table that goes on with the rows, since a DDL has changed a type.
`version_ts`: the commit_ts of that DDL, in the table that goes on. `whole_at`: the cursor of the newest commit before
which no release has left rows of lost keys.

`delta`: the name of the delta of a table; "" or missing: it has none. `taken`: the snapshot of the delta whose rows the
table has taken last. Those of a delta: `base` (in the summaries of its snapshots too) is the snapshot of the table that
it belongs to; `keys` are the ids of the key fields; `merged` are the files whose rows the table has taken; `now` is the
query of the view."""


@dataclass(slots=True)
class LakeTable:
    """An Iceberg table that a feed writes, as it was last read or committed.

    `table_id`: logical id of the table of TiDB whose rows it has. `schema`: its schema after the next commit;
    `evolves`: that commit must change the schema. `marks`: what its newest commit by a feed states; None without one.
    `files`: written data files that the next commit adds. `stated`: texts that each commit states besides its marks.
    """

    identifier: Identifier
    shape: Shape
    table: Table
    table_id: int
    schema: LakeSchema
    marks: Marks | None
    evolves: bool = False
    files: list[DataFile] = field(default_factory=list)
    stated: Mapping[str, str] = field(default_factory=dict)

    @property
    def loaded(self) -> bytes | None:
        """The raw key up to which the initial rows are in the table, while the feed loads them; otherwise None."""
        return None if self.marks is None else self.marks.loaded

    def is_whole(self, tenant: TenantKey) -> bool:
        """Whether only releases have written the table that delete the rows of lost keys (lake_rows.py,
        `replaced_keys`). A release that leaves such rows sets neither SINCE nor WHOLE."""
        properties, marks = self.table.properties, self.marks
        whole = properties.get(WHOLE)
        if whole is not None and marks is not None and whole != marks.texts(tenant)[CURSOR]:
            return False
        return SINCE in properties

    @property
    def through_ts(self) -> int:
        """The commit_ts up to which the table has all changes; 0 if no feed has committed to it."""
        return 0 if self.marks is None else self.marks.at.commit_ts


def shape_of(identifier: Identifier) -> Shape:
    """The shape of the table with this name."""
    return "changes" if identifier[-1].endswith("__changes") else "table"
