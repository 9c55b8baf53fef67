"""Decides whether a log backup may become the source of a tenant. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tistream.format.br.full_backup import FullBackup
from tistream.logbackup.prefix import LogBackup
from tistream.logbackup.release import STORE_ID
from tistream.wire.bulk.backfills import BackfillRow
from tistream_meta.decide.model import Source

EVERY_TABLE = "*.*"


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """The facts by which a new source is judged. backup: the content of the log backup's prefix. snapshot_ts: the
    tenant's; None if the tenant has not started. released_ts: the ts up to which earlier sources of the tenant have
    released changes, that is, pushed them as change files; None if there were none. safe_point_ts: below it the log may
    be truncated. earlier: the tenant's sources, including removed ones. stores: the ids of stores that push to the
    tenant. full: the full backup with the rows from before the log, if one is named."""

    backup: LogBackup
    snapshot_ts: int | None
    released_ts: int | None
    safe_point_ts: int
    earlier: Sequence[Source]
    stores: Collection[int]
    full: FullBackup | None = None


def refusal(facts: SourceFacts) -> str | None:
    """The reason why the source is refused, with advice; None if the source may be added."""
    upstream = str(facts.backup.cluster_id)
    others = sorted({one.upstream_id for one in facts.earlier} - {upstream})
    if others:
        return f"the prefix is of the cluster {upstream}; the tenant's earlier source was of {others[0]}"
    if pushing := sorted(set(facts.stores) - {STORE_ID}):
        return (
            f"stores push to the tenant already ({', '.join(map(str, pushing[:3]))}): a log backup would repeat their "
            "changes; register another tenant for it"
        )
    if facts.full is not None and (reason := full_backup_refusal(facts.full, facts.snapshot_ts, {upstream})):
        return reason
    if facts.snapshot_ts is None:
        return (
            "the tenant has no schema yet: name a full backup of the cluster, or push the tenant's schema_snap first, "
            "and wait until it was read"
        )
    return _gap(facts, facts.snapshot_ts)


def _gap(facts: SourceFacts, snapshot_ts: int) -> str | None:
    """The reason why changes are missing between the log's beginning and the ts at which the tenant begins, or at which
    its earlier source ended; None if no change is missing."""
    begin = snapshot_ts if facts.released_ts is None else facts.released_ts
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


def full_backup_refusal(full: FullBackup, snapshot_ts: int | None, upstream_ids: Collection[str]) -> str | None:
    """The reason why a tenant's rows cannot come from a full backup; None if they can. `upstream_ids` are the ids of
    the upstream clusters of its log backups."""
    if others := sorted(set(upstream_ids) - {str(full.cluster_id)}):
        return (
            f"the full backup is of the cluster {full.cluster_id}, and the log backup of {others[0]}: name a full "
            "backup of the same cluster"
        )
    if snapshot_ts is not None and full.end_version < snapshot_ts:
        return (
            f"the full backup is as of {full.end_version}, before the tenant's snapshot_ts {snapshot_ts}: changes "
            "between them are in no log; take a newer one"
        )
    return None


def rows_wait(source: Source, backfills: Sequence[BackfillRow]) -> str | None:
    """The reason why a source may not release changes (push them as change files) yet; None if it may. The old value of
    an update may be a row from before the log, which the backfill that began with the source reads. So that backfill
    must have ended: it has finished, or an operator has cancelled it and gives up these values. `backfills` are those
    of the tenant."""
    if source.snapshot_url is None:
        return None
    mine = [one for one in backfills if one.source.url == source.snapshot_url and EVERY_TABLE in one.tables]
    if not mine or any(one.state in ("finished", "cancelled") for one in mine):
        return None
    newest = max(mine, key=lambda one: one.created_ms)
    if newest.state == "running":
        return f"backfill {newest.backfill_id} of the tenant's rows is not finished: `tistream backfill show` has more"
    again = f"tistream backfill run --br-full {source.snapshot_url}"
    return f"backfill {newest.backfill_id} of the tenant's rows failed: run it again with `{again}`"
