"""Whether a log backup may become the source of a tenant. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tistream.logbackup.prefix import LogBackup
from tistream.logbackup.release import STORE_ID
from tistream_meta.decide.model import Source


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What is known when a source is added.

    backup: of its prefix. snapshot_ts: of the tenant; None while it has none. released_ts: where the releases of the
    tenant's earlier sources ended; None without any. safe_point_ts: below it the log may be truncated. earlier: the
    tenant's sources, removed ones too. stores: the ids of stores that push to the tenant.
    """

    backup: LogBackup
    snapshot_ts: int | None
    released_ts: int | None
    safe_point_ts: int
    earlier: Sequence[Source]
    stores: Collection[int]


def refusal(facts: SourceFacts) -> str | None:
    """Why the source is refused, with the way out; None if it may be added."""
    upstream = str(facts.backup.cluster_id)
    others = sorted({one.upstream_id for one in facts.earlier} - {upstream})
    if others:
        return f"the prefix is of the cluster {upstream}; the tenant's earlier source was of {others[0]}"
    if pushing := sorted(set(facts.stores) - {STORE_ID}):
        return (
            f"stores push to the tenant already ({', '.join(map(str, pushing[:3]))}): a log backup would repeat their "
            "changes; register another tenant for it"
        )
    if facts.snapshot_ts is None:
        return "the tenant has no schema yet: push its schema_snap first, and wait until it was read"
    begin = facts.snapshot_ts if facts.released_ts is None else facts.released_ts
    what = "the tenant's snapshot_ts" if facts.released_ts is None else "the released ts of its earlier source"
    if facts.backup.start_ts > begin:
        return (
            f"the log begins at {facts.backup.start_ts}, after {what} {begin}: changes between them are in no log; "
            "register a tenant with a newer snapshot"
        )
    if facts.safe_point_ts > begin:
        return (
            f"the log was truncated to {facts.safe_point_ts}, above {what} {begin}: changes between them are gone; "
            "register a tenant with a newer snapshot"
        )
    return None
