"""Counts the row events and bytes that changefeeds have delivered, by feed and hour, for the usage of tenants.

A worker reports totals: the row events and bytes that the sink has acknowledged since the feed began there. The totals
are part of the feed's progress in the sink. An hour gets the amount by which a total exceeds the highest earlier total.
So reports may arrive twice, and events that a killed worker did not report are in the total of the next worker: the
hours add up to what the sink has. Events that were acknowledged between the last report and the removal of a feed are
not counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select, update

from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import FeedReport
from tistream.wire.usage import FeedAmounts, HourOfUsage, Usage, hour_text
from tistream_meta.database import tables
from tistream_meta.database.audit_log import Write
from tistream_meta.database.transactions import Transactions
from tistream_meta.decide.feed_policy import Feed
from tistream_meta.feeds import feed_shards

_USED = tables.feed_usage
_SINK = ("cluster_id", "tenant_id", "changefeed_id", "created_ms", "shard", "sink")

Used = Mapping[int, Mapping[str, tuple[int, int]]]
"""Row events and bytes, by hour and changefeed."""


class FeedUsageBook:
    """Reads and deletes the hourly counts of changefeeds. Each call is a transaction of its own."""

    def __init__(self, transactions: Transactions, write: Write, now_ms: ColumnElement[int]) -> None:
        self._transactions, self._write, self._now_ms = transactions, write, now_ms

    def of_tenant(self, key: TenantKey, from_ms: int, to_ms: int) -> Used:
        """The counts of a tenant's feeds in the hours that begin at or after `from_ms` and before `to_ms` (Unix ms)."""

        def body(connection: Connection) -> Used:
            sums = func.sum(_USED.c.feed_rows).label("rows_in"), func.sum(_USED.c.feed_bytes).label("bytes_in")
            names = _USED.c.hour_ms, _USED.c.changefeed_id
            mine = and_(_USED.c.cluster_id == key.cluster_id, _USED.c.tenant_id == key.tenant_id)
            within = and_(mine, _USED.c.hour_ms >= from_ms, _USED.c.hour_ms < to_ms)
            found: dict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
            for row in connection.execute(select(*names, *sums).where(within).group_by(*names)):
                found[row.hour_ms][row.changefeed_id] = int(row.rows_in), int(row.bytes_in)
            return found

        return self._transactions.run(body)

    def forget(self, before_ms: int) -> int:
        """Delete hours that began before `before_ms`, except the newest hour of each sink, because later totals are
        compared with it. Returns the number of deleted rows."""

        def body(connection: Connection) -> int:
            newest = (
                select(*(_USED.c[name] for name in _SINK), func.max(_USED.c.hour_ms).label("newest"))
                .group_by(*(_USED.c[name] for name in _SINK))
                .having(func.min(_USED.c.hour_ms) < before_ms)
            )
            gone = 0
            for row in connection.execute(newest).all():
                same = and_(*(_USED.c[name] == getattr(row, name) for name in _SINK))
                old = and_(same, _USED.c.hour_ms < min(before_ms, row.newest))
                gone += connection.execute(delete(_USED).where(old)).rowcount
            return gone

        return self._write(body)


def note(connection: Connection, hour_ms: int, feed: Feed, report: FeedReport) -> None:
    """Add what a shard's worker has reported since the last report to the hour that begins at `hour_ms` (Unix ms). The
    report has totals."""
    names = {
        "cluster_id": feed.tenant.cluster_id,
        "tenant_id": feed.tenant.tenant_id,
        "changefeed_id": feed.feed_id,
        "created_ms": feed.generation,
        "shard": report.shard.shard,
        "sink": feed_shards.sink_of(feed.sink_uri),
    }
    same = and_(*(_USED.c[name] == value for name, value in names.items()))
    before = connection.execute(select(func.max(_USED.c.rows_until), func.max(_USED.c.bytes_until)).where(same)).one()
    rows, size = (max(0, now - int(then or 0)) for now, then in zip((report.rows, report.bytes), before, strict=True))
    if not rows and not size:
        return
    until = {"rows_until": int(before[0] or 0) + rows, "bytes_until": int(before[1] or 0) + size}
    hour = and_(same, _USED.c.hour_ms == hour_ms)
    more = {"feed_rows": _USED.c.feed_rows + rows, "feed_bytes": _USED.c.feed_bytes + size}
    if not connection.execute(update(_USED).where(hour).values(**more, **until)).rowcount:
        counted = {"hour_ms": hour_ms, "feed_rows": rows, "feed_bytes": size}
        connection.execute(insert(_USED).values(**names, **counted, **until))


def with_feeds(usage: Usage, used: Used) -> Usage:
    """Add the usage of a tenant's feeds to the tenant's usage of the same hours. Pure."""
    known = {int(hour.hour_ms): hour for hour in usage.hours}
    total: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    hours = []
    for hour_ms in sorted(known.keys() | used.keys()):
        hour = known.get(hour_ms) or HourOfUsage.empty(hour_text(hour_ms), hour_ms)
        hours.append(hour.model_copy(update=_amounts(used.get(hour_ms, {}))))
        for feed, (rows, size) in used.get(hour_ms, {}).items():
            total[feed] = total[feed][0] + rows, total[feed][1] + size
    return usage.model_copy(update={"hours": hours, "total": usage.total.model_copy(update=_amounts(total))})


def _amounts(feeds: Mapping[str, tuple[int, int]]) -> dict[str, object]:
    return {
        "feed_rows": str(sum(rows for rows, _ in feeds.values())),
        "feed_bytes": str(sum(size for _, size in feeds.values())),
        "feeds": {feed: FeedAmounts(rows=str(rows), bytes=str(size)) for feed, (rows, size) in sorted(feeds.items())},
    }
