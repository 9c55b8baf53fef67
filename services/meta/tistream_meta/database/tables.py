"""The tables of the meta database, for SQLAlchemy Core. migrations/*.sql creates them; a test compares the two. Only
what must survive a restart of every process is here. Columns that end in `_ts` are timestamps (TSO) of the upstream.
Other times are ms since the Unix epoch, by the database's clock."""

from sqlalchemy import BigInteger, Column, Index, LargeBinary, MetaData, String, Table, Text

from tistream.storage.measured import KINDS

metadata = MetaData()

clusters = Table(
    "clusters",
    metadata,
    Column("cluster_id", String(63), primary_key=True),
    Column("created_ms", BigInteger, nullable=False),
)

tenants = Table(
    "tenants",
    metadata,
    Column("cluster_id", String(63), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
    Column("snapshot_ts", BigInteger),  # null until schema_snap has been read and the tasks exist
    Column("problem", Text),  # why it is null
    Column("created_ms", BigInteger, nullable=False),
    Column("retention_ms", BigInteger),  # how long rows are kept after their commit; null = for ever
    Column("kms_key_id", String(512)),  # key that encrypts its objects; null = no key of its own
    Column("index_keys", BigInteger),  # 1: its index entries are kept, 0: dropped; null = the sorters' setting
    Column("kind", String(16)),  # of its changes: tidb (or null) or raw
    Column("paused", BigInteger, nullable=False, server_default="0"),  # 1: no more files are read
    Column("delete_at_ms", BigInteger),  # when it is to be erased; null = never
    Column(
        "erasing", BigInteger, nullable=False, server_default="0"
    ),  # 1: it is being erased, which nothing takes back
)

tasks = Table(
    "tasks",
    metadata,
    Column("task_id", BigInteger, primary_key=True, autoincrement=False),
    Column("cluster_id", String(63), nullable=False),
    Column("tenant_id", String(63), nullable=False),
    Column("range_start", LargeBinary, nullable=False),
    Column("range_end", LargeBinary, nullable=False),  # empty = +infinity
    Column("sorter_node", String(63)),
    Column("dispatcher_node", String(63)),
    Column("task_epoch", BigInteger, nullable=False),
    Column("next_node", String(63)),  # the sorter that prepares to take it over
    Column("parents", Text),  # JSON: the sealed tasks that it carries on
    Column("seal", Text),  # JSON: the order to end it, and its children; null = none
    Index("tasks_by_sorter", "sorter_node"),
)

nodes = Table(
    "nodes",
    metadata,
    Column("node_id", String(63), primary_key=True),
    Column("role", String(16), nullable=False),
    Column("url", String(255), nullable=False),
    Column("start_epoch", BigInteger, nullable=False),
    Column("instance", String(63), nullable=False, server_default=""),
    Column("last_heartbeat_ms", BigInteger, nullable=False),  # coarse: written with each renewal of the lease
    Column("draining", BigInteger, nullable=False, server_default="0"),  # 1: an operator wants it empty
)

stores = Table(
    "stores",
    metadata,
    Column("cluster_id", String(63), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
    Column("store_id", BigInteger, primary_key=True, autoincrement=False),
    Column("dispatcher_node", String(63)),  # null while no dispatcher reads it
    Column("discovered_ms", BigInteger, nullable=False),
    Column("retired_ts", BigInteger),  # the store is retired, its files up to here are being deleted; null = it is read
)

sources = Table(
    "sources",
    metadata,
    Column("cluster_id", String(63), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
    Column("source_id", String(63), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("url", Text, nullable=False),
    Column("snapshot_kind", String(16), nullable=False),
    Column("snapshot_url", Text),
    Column("upstream_id", String(20), nullable=False),  # of the cluster that writes the log
    Column("created_ms", BigInteger, nullable=False),
    Column("removed_ms", BigInteger),  # null = it is read
)

backfills = Table(
    "backfills",  # docs/backfill.md
    metadata,
    Column("cluster_id", String(63), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
    Column("backfill_id", String(63), primary_key=True),
    Column("source", Text, nullable=False),  # JSON
    Column("asked", Text, nullable=False),  # JSON: patterns of tables
    Column("state", String(16), nullable=False),
    Column("reason", Text),  # why it failed
    Column("created_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),  # null = it runs
)

restores = Table(
    "restores",
    metadata,
    Column("cluster_id", String(63), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
    Column("restore_id", String(63), primary_key=True),
    Column("state", String(16), nullable=False),
    Column("epoch", BigInteger, nullable=False),  # of the newest claim; 0 = it was never claimed
    Column("node_id", String(63)),  # of the newest claim
    Column("lease_until_ms", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("wanted", Text, nullable=False),  # JSON of tistream.wire.bulk.restores.NewRestore
    Column("tables", Text, nullable=False),  # JSON of its RestoreTables
    Column("reason", Text),  # JSON of a text
)

changefeeds = Table(
    "changefeeds",
    metadata,
    Column("cluster_id", String(63), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
    Column("changefeed_id", String(128), primary_key=True),
    Column("state", String(16), nullable=False),
    Column("sink_uri", Text, nullable=False),  # JSON of a text, which has no password
    Column("config", Text, nullable=False),  # JSON
    Column("start_ts", BigInteger, nullable=False),
    Column("end_ts", BigInteger),  # null = it does not end
    Column("created_ms", BigInteger, nullable=False),
    Column("error", Text),  # JSON of a text: why it has failed
    Column("revision", BigInteger, nullable=False, server_default="0"),  # raised by each change of the feed
    Column("begin_ts", BigInteger),  # where a sink without progress begins; null = at start_ts
    Column("moved", Text),  # JSON of tistream.wire.bulk.changefeeds.Move: the newest move of the checkpoint
    Column("skips", Text),  # JSON: a list of …Skip
    Column("applied", Text),  # JSON of …Applied: the newest revision that a worker has put in force
    Column("shards", BigInteger),  # that it has by its load; null = those of its configuration
    Column("recut", Text),  # JSON of …Recut: the feed is to have other shards
    Column("ended", Text),  # JSON: row events and bytes of shards that a cut has ended, by sink and shard
    Column("skipped", Text),  # JSON: events that were left out, by sink and shard
)

# Removed feeds whose progress was kept: kept_feeds.py
kept_feeds = Table(
    "kept_feeds",
    metadata,
    Column("cluster_id", String(63), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
    Column("changefeed_id", String(128), primary_key=True),
    Column("removed_ms", BigInteger, nullable=False),
    Column("kept", Text, nullable=False),  # JSON of its KeptFeed
)

# What happened to feeds: feed_events.py
feed_events = Table(
    "feed_events",
    metadata,
    Column("cluster_id", String(63), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
    Column("changefeed_id", String(128), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("event", Text, nullable=False),  # JSON of tistream.wire.bulk.feed_changes.Happening
)

feed_shards = Table(
    "feed_shards",
    metadata,
    Column("cluster_id", String(63), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
    Column("changefeed_id", String(128), primary_key=True),
    Column("shard", BigInteger, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),  # of the newest holder; 0 = there was none
    Column("node_id", String(63)),  # of the holder; null = none
    Column("instance", String(63), nullable=False),  # the start of that process
    Column("lease_until_ms", BigInteger, nullable=False),
    Column("checkpoint_ts", BigInteger, nullable=False),
    Column("report", Text),  # JSON of tistream.wire.bulk.changefeeds.FeedReport
)

secrets = Table(
    "secrets",
    metadata,
    Column("cluster_id", String(63), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
    Column("name", String(63), primary_key=True),
    Column("sealed", Text, nullable=False),  # tistream.secrets.sealing
    Column("put_ms", BigInteger, nullable=False),
)

territories = Table(
    "territories",  # docs/agent.md
    metadata,
    Column("cluster_id", String(63), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
    Column("store_id", BigInteger, primary_key=True, autoincrement=False),  # of its files
    Column("range_start", LargeBinary, nullable=False),
    Column("range_end", LargeBinary, nullable=False),  # empty = +infinity
    Column("upstream", Text, nullable=False),  # JSON: pd, pd_cluster_id, kind, keyspace
    Column("epoch", BigInteger, nullable=False),  # of the newest holder; 0 = there was none
    Column("node_id", String(63)),  # the agent that holds it; null = none
    Column("instance", String(63), nullable=False),  # the start of that process
    Column("created_ms", BigInteger, nullable=False),
)

REQUESTS = "requests_"  # and a kind of tistream.storage.measured.KINDS: a column of tenant_usage
COUNTED = ("bytes_in", "bytes_served", "rows_served", *(REQUESTS + kind for kind in KINDS))

tenant_usage = Table(
    "tenant_usage",  # docs/adr/0014
    metadata,
    Column("cluster_id", String(63), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
    Column("hour_ms", BigInteger, primary_key=True, autoincrement=False),  # its beginning
    # "" for numbers from manifests, which every reader reports the same
    Column("node_id", String(63), primary_key=True),
    Column("instance", String(63), primary_key=True),  # the start of the process that has counted
    *(Column(name, BigInteger, nullable=False) for name in COUNTED),
    Index("tenant_usage_by_hour", "hour_ms"),
)

feed_usage = Table(
    "feed_usage",
    metadata,
    Column("cluster_id", String(63), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
    Column("changefeed_id", String(128), primary_key=True),
    Column("created_ms", BigInteger, primary_key=True, autoincrement=False),  # of the feed
    Column("shard", BigInteger, primary_key=True, autoincrement=False),
    Column("sink", String(32), primary_key=True),  # digest of what has the progress
    Column("hour_ms", BigInteger, primary_key=True, autoincrement=False),  # its beginning
    Column("feed_rows", BigInteger, nullable=False),  # in the hour
    Column("feed_bytes", BigInteger, nullable=False),
    Column("rows_until", BigInteger, nullable=False),  # since the feed began in this sink, until the hour's end
    Column("bytes_until", BigInteger, nullable=False),
    Index("feed_usage_by_hour", "hour_ms"),
)

tenant_stored = Table(
    "tenant_stored",
    metadata,
    Column("cluster_id", String(63), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
    Column("hour_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("task_id", BigInteger, primary_key=True, autoincrement=False),  # whose manifest names it
    Column("of_task", BigInteger, primary_key=True, autoincrement=False),  # the task that wrote it: heirs share it
    Column("manifest", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Index("tenant_stored_by_hour", "hour_ms"),
)

LIMITS = (
    "requests_per_second",
    "pulls_at_once",
    "served_bytes_per_second",
    "notifications_per_second",
    "changefeeds",
    "changefeed_shards",
    "feed_rows_per_second",
    "feed_bytes_per_second",
    "stored_bytes",
)

quotas = Table(
    "quotas",
    metadata,
    Column("cluster_id", String(63), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
    *(Column(name, BigInteger) for name in LIMITS),  # as wire.limits.Limits
)

owner = Table(
    "owner",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),  # always 1
    Column("node_id", String(63), nullable=False),
    Column("owner_rev", BigInteger, nullable=False),
    Column("lease_until_ms", BigInteger, nullable=False),
    Column("url", String(255), nullable=False, server_default=""),  # where the others reach it
)

tokens = Table(
    "tokens",
    metadata,
    Column("token_id", String(16), primary_key=True),
    Column("hash", String(64), nullable=False),  # SHA-256 of the secret, which is kept nowhere
    Column("label", String(128), nullable=False),
    Column("grants", Text, nullable=False),  # JSON
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),  # null = never
    Column("revoked_ms", BigInteger),
)

# Changes with their actors: audit_log.py. No row is ever changed; retention deletes rows.
audit = Table(
    "audit",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("action", String(64), nullable=False),
    Column("actor", Text, nullable=False),  # JSON: a name may have any character
    Column("address", String(64)),
    Column("cause", String(64)),
    Column("subject", String(160), nullable=False),
    Column("cluster_id", String(63)),
    Column("tenant_id", String(63)),
    Column("was", Text),  # JSON
    Column("became", Text),  # JSON
    Index("audit_by_tenant", "cluster_id", "tenant_id", "seq"),
    Index("audit_by_time", "at_ms"),
)

counters = Table(
    "counters",
    metadata,
    Column("name", String(32), primary_key=True),  # ROUTE_VERSION, LAST_TASK_ID, LAST_START, …
    Column("value", BigInteger, nullable=False),
)

ROUTE_VERSION = "route_version"
LAST_TASK_ID = "last_task_id"
LAST_START = "last_start"
TOKENS_VERSION = "tokens_version"
LAST_AUDIT = "last_audit"
