"""Whether a feed could run: its URI and configuration, the hosts that it may write to, and a look at its sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tistream.errors import InvalidRequest, Unavailable
from tistream.model.ids import TenantKey
from tistream.schema.visible import TableVersion
from tistream.wire.bulk.changefeeds import ChangefeedPlan, CheckChangefeed
from tistream_changefeed.config.plan import plan
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.feed_settings import parsed
from tistream_changefeed.hold.secret_keys import SecretKeys
from tistream_changefeed.sinks.allowed import check_hosts, storage_url
from tistream_changefeed.sinks.kafka.topics import Topics

CHECK_S = 4.0  # less than the API server waits for the answer


@dataclass(frozen=True, slots=True)
class Checks:
    """`hosts`: those that feeds may write to. `file_urls`: places for the files of large messages. `tables`: the tables
    of a tenant that exist now."""

    hosts: Sequence[str]
    keys: SecretKeys
    tables: Callable[[TenantKey], Sequence[TableVersion]]
    file_urls: Sequence[str] = ()

    def plan(self, check: CheckChangefeed) -> ChangefeedPlan:
        """What the feed would do. Creates nothing. Raises InvalidRequest, TargetNotAllowed, and Unavailable if the sink
        does not answer."""
        tenant = TenantKey.parse(check.cluster_id, check.tenant_id)
        feed = parsed(check.wanted.sink_uri, check.wanted.config)
        check_hosts(feed.hosts, self.hosts)
        if feed.claim_check is not None:
            storage_url(feed.claim_check, self.file_urls)
        values = self.keys.values(tenant, check.wanted.sink_uri, check.wanted.config, check.secrets)
        planned = plan(feed.config, self.tables(tenant))
        topics = Topics(feed.target.with_secrets(values), "tistream-check", CHECK_S)
        try:
            found = topics.planned()
        except FeedFailed as error:
            if error.failure.kind == "retry":
                raise Unavailable(f"sink_uri: {error}") from error
            raise InvalidRequest(f"sink_uri: {error}", {"parameter": "sink_uri"}) from error
        return ChangefeedPlan(topics={**planned.topics, **found}, warnings=[*feed.warnings, *planned.warnings])
