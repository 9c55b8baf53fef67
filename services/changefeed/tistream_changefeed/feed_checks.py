"""Checks whether a feed could run: its URI and configuration, the hosts that it may write to, and its sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tistream.errors import InvalidRequest, Unavailable
from tistream.model.ids import TenantKey
from tistream.schema.visible import TableVersion
from tistream.wire.bulk.changefeeds import TABLES_MAX, ChangefeedPlan, CheckChangefeed, FeedTable, LeftOutTable
from tistream_changefeed.config.parse import ParsedFeed
from tistream_changefeed.config.plan import NO_KEY, FeedPlan
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.hold.feed import Allowed
from tistream_changefeed.hold.secret_keys import SecretKeys
from tistream_changefeed.sinks.feeds import feed_of
from tistream_changefeed.sinks.kafka.feed_settings import without_secrets

CHECK_S = 4.0  # less than the API server waits for the answer


@dataclass(frozen=True, slots=True)
class FeedChecks:
    """Checks feeds before they are created or changed. `tables` returns the present tables of a tenant."""

    allowed: Allowed
    keys: SecretKeys
    tables: Callable[[TenantKey], Sequence[TableVersion]]

    def plan(self, check: CheckChangefeed) -> ChangefeedPlan:
        """Check a feed, and return the tables and topics that it would have. The sink is contacted only if the request
        has `look`. Nothing is created. Raises InvalidRequest, TargetNotAllowed, and Unavailable if the sink does not
        answer."""
        tenant = TenantKey.parse(check.cluster_id, check.tenant_id)
        clean = without_secrets(check.wanted.changefeed_id, check.wanted.sink_uri, check.wanted.config)
        feed = feed_of(clean.sink_uri, clean.document)
        planned = feed.plan(self.tables(tenant))
        warnings = [*feed.warnings, *planned.warnings]
        if not check.look:
            return _planned(clean, planned, planned.topics, warnings)
        sealed = self.keys.sealed(tenant, clean.secrets)
        feed.check_allowed(self.allowed)
        values = self.keys.values(tenant, clean.sink_uri, clean.document, {**check.secrets, **sealed})
        try:
            found = feed.look(planned, values, self.allowed, CHECK_S)
        except FeedFailed as error:
            if error.failure.kind == "retry" and not error.failure.refused:
                raise Unavailable(f"sink_uri: {error}") from error
            raise InvalidRequest(f"sink_uri: {error}", {"parameter": "sink_uri"}) from error
        return _planned(clean, planned, {**planned.topics, **found.topics}, [*warnings, *found.warnings], sealed)


def _planned(
    clean: ParsedFeed,
    planned: FeedPlan,
    topics: Mapping[str, int],
    warnings: list[str],
    sealed: Mapping[str, str] | None = None,
) -> ChangefeedPlan:
    tables = [
        FeedTable(
            database=one.database,
            table=one.table,
            topic=one.topic,
            partition=one.partition,
            columns=list(one.columns),
        )
        for one in planned.tables[:TABLES_MAX]
    ]
    left_out = planned.left_out[:TABLES_MAX]
    return ChangefeedPlan(
        topics=dict(topics),
        warnings=warnings,
        tables=tables,
        table_count=len(planned.tables),
        left_out=[LeftOutTable(database=one[0], table=one[1], reason=f"it has {NO_KEY}") for one in left_out],
        sink_uri=clean.sink_uri,
        config=clean.document,
        secrets=dict(sealed or {}),
    )
