"""What the snapshots of a table and its earlier metadata show of the commits to it. Callers convert the errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from tistream_changefeed.sinks.iceberg.marks import Told


def branch(newest: int | None, snapshots: Sequence[Snapshot]) -> list[Told]:
    """Follow a branch from the snapshot with the id `newest` through its parents. Returns the snapshots, newest
    first, up to the first id that `snapshots` does not have.

    `snapshots` may have several entries with the same id. The first entry that names a parent counts, because some
    programs that expire a snapshot remove its id from the entry of its child.
    """
    known: dict[int, Snapshot] = {}
    for one in snapshots:
        if one.snapshot_id not in known or known[one.snapshot_id].parent_snapshot_id is None:
            known[one.snapshot_id] = one
    found: list[Told] = []
    while newest is not None and (snapshot := known.get(newest)) is not None:
        texts = {} if snapshot.summary is None else snapshot.summary.additional_properties
        newest = snapshot.parent_snapshot_id
        found.append(Told(snapshot.sequence_number or 0, texts, newest is not None))
    return found


def earlier(table: Table) -> Iterator[Snapshot]:
    """The snapshots in those earlier metadata of a table that still exist, newest first."""
    for entry in reversed(table.metadata.metadata_log):
        try:
            yield from FromInputFile.table_metadata(table.io.new_input(entry.metadata_file)).snapshots
        except FileNotFoundError:
            return  # it was deleted, and those before it too


def has_file_of(table: Table, sequence: int) -> bool:
    """Whether the table has a data file of this commit or an earlier one, so that its rows have not begun anew
    since."""
    snapshot = table.metadata.current_snapshot()
    return snapshot is not None and any(
        one.sequence_number is not None and one.sequence_number <= sequence
        for manifest in snapshot.manifests(table.io)
        for one in manifest.fetch_manifest_entry(table.io)
    )
