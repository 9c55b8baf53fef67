"""Selects the tables that a squashed pull compares: those of the scope at both timestamps, matched by id, then by name.
Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tistream.schema.visible import TableVersion
from tistream_api.points.net.net_changes import TableComparison, comparable, parts_between
from tistream_api.points.net.net_page import DDL, GONE, ROWS, NetPart


def squash_parts(
    before: Sequence[TableVersion],
    after: Sequence[TableVersion],
    versions: tuple[int, int],
    low_ts: int,
    high_ts: int,
    *,
    ddl: bool,
) -> list[NetPart]:
    """What the answer sends, in order: deletes of the rows of tables that no longer exist, by their last definition at
    `low_ts`; DDL events, if wanted; then the net changes of each table at `high_ts`, by its definition then. `before`
    and `after` are the tables at these two timestamps, and `versions` the schema versions."""
    earlier = {version.head.id: version for version in before}
    later = {version.head.id for version in after}
    free = {version.folded: version for version in before if version.head.id not in later}
    out: list[NetPart] = [NetPart(DDL, 0, None)] if ddl else []
    used = set(later)
    for version in after:
        own = earlier.get(version.head.id)
        named = free.get(version.folded) if own is None else None
        if named is not None and comparable(named.table, version.table):
            own = named
            used.add(named.head.id)
        parts = parts_between(own, version, versions, low_ts, high_ts)
        out += [NetPart(ROWS, version.head.id, part) for part in parts]
    for version in before:
        if version.head.id not in used:
            gone = TableComparison(version, versions[0], low_ts, high_ts, gone=tuple(sorted(version.head.physical_ids)))
            out.append(NetPart(GONE, version.head.id, gone))
    return sorted(out, key=lambda one: one.place)
