"""What the snapshots of a table and its earlier metadata show of the commits to it. Callers convert the errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from tistream_changefeed.sinks.iceberg.marks import Told


def branch(newest: int | None, snapshots: Sequence[Snapshot]) -> list[Told]:
    """What the snapshots of one branch show, newest first: from the snapshot with the id `newest` back from parent
    to parent, as far as `snapshots` have them. An earlier entry of one id may lack its parent, because some
    programs remove the id of a snapshot that expires from the next one."""
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
    """Whether the table has a data file of the commit with the number `sequence` or of an earlier one. If it has,
    its rows have not begun anew since that commit."""
    snapshot = table.metadata.current_snapshot()
    return snapshot is not None and any(
        one.sequence_number is not None and one.sequence_number <= sequence
        for manifest in snapshot.manifests(table.io)
        for one in manifest.fetch_manifest_entry(table.io)
    )
