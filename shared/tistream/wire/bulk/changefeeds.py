"""Changefeeds (docs/changefeeds.md): the requests of callers, the shards that workers hold, and the progress."""

from typing import Annotated, Any, Literal

from pydantic import Field

from tistream.wire.meta import StrictRequest
from tistream.wire.sorter import Wire

FEED_ID = r"^[A-Za-z0-9][A-Za-z0-9-]{0,127}$"
URI_MAX = 4_096
CONFIG_BYTES_MAX = 256 << 10
FEEDS_MAX = 100  # changefeeds of a tenant
SHARDS_MAX = 64  # of a changefeed
TABLES_MAX = 1_000  # tables that an answer names
# The states of a shard that a worker reports. `fenced`: another holder owns the shard.
Phase = Literal["running", "retrying", "failed", "finished", "fenced"]
State = Literal["running", "retrying", "paused", "failed", "finished", "removing"]
StoredState = Literal["running", "paused", "failed", "finished"]
HeldStage = Literal["pool", "filter", "encode", "sink", "ddl", "quota"]
FeedId = Annotated[str, Field(pattern=FEED_ID)]
Ts = Annotated[str, Field(pattern="^[0-9]{1,19}$")]


class CreateChangefeed(StrictRequest):
    """`POST …/changefeeds`: create a changefeed. `start_ts` is exclusive; the default is the tenant's resolved_ts.
    `end_ts` is inclusive. `config`: TiCDC's configuration file, as the JSON form of its TOML."""

    changefeed_id: FeedId
    sink_uri: str = Field(min_length=1, max_length=URI_MAX)
    start_ts: Ts | None = None
    end_ts: Ts | None = None
    config: dict[str, Any] = Field(default_factory=dict)


class NewChangefeed(StrictRequest):
    """A CreateChangefeed that the API server and a worker have checked, as the API server sends it to the meta server.
    `start_given`: whether the caller stated `start_ts`; a repeated call without it means the existing feed. `secrets`:
    see ChangefeedPlan."""

    changefeed_id: FeedId
    sink_uri: str = Field(min_length=1, max_length=URI_MAX)
    start_ts: Ts
    start_given: bool
    end_ts: Ts | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    secrets: dict[str, str] = Field(default_factory=dict)


class CheckChangefeed(StrictRequest):
    """`POST /v1/changefeeds/checks` at a worker: check whether the worker could run the feed."""

    cluster_id: str
    tenant_id: str
    wanted: CreateChangefeed
    secrets: dict[str, str] = Field(default_factory=dict)  # sealed texts, by name
    look: bool = True  # whether the worker connects to the sink for the check


class FeedTable(Wire):
    """A table that a feed sends: its topic, its partition rule, and the columns that are sent."""

    database: str
    table: str
    topic: str
    partition: str
    columns: list[str]


class LeftOutTable(Wire):
    """A table that exists and that the rules of a feed include, but that the feed does not send for this reason."""

    database: str
    table: str
    reason: str


class ChangefeedPlan(Wire):
    """What a feed would do: its topics with their numbers of partitions, the first TABLES_MAX of the tables that exist
    now, the number of these tables, and notes for the user. `left_out`: at most TABLES_MAX tables that are not sent.
    `sink_uri`, `config`: the form that is stored, without passwords. `secrets`: the passwords that were removed from
    it, encrypted, by name."""

    topics: dict[str, int]
    warnings: list[str]
    tables: list[FeedTable]
    table_count: int
    left_out: list[LeftOutTable] = Field(default_factory=list)
    sink_uri: str
    config: dict[str, Any]
    secrets: dict[str, str] = Field(default_factory=dict)


class StoppedTableInfo(Wire):
    """A table that a feed no longer sends, because it cannot send one of the table's events. All of its events at or
    below `checkpoint_ts` are in the sink. `table` "": all tables of the database. `left`: the user has decided that the
    feed's checkpoint does not wait for the table."""

    database: str
    table: str
    checkpoint_ts: str
    reason: str
    left: bool


class FeedTables(Wire):
    """The first TABLES_MAX tables that a feed sends now, the number of all, and the tables that have stopped.
    `left_out`: at most TABLES_MAX tables that the rules include and that are not sent. `warnings`: notes for the user,
    such as rules that match no table."""

    tables: list[FeedTable]
    count: int
    warnings: list[str]
    left_out: list[LeftOutTable] = Field(default_factory=list)
    stopped: list[StoppedTableInfo] = Field(default_factory=list)


class HeldBy(Wire):
    """The reason why a feed does not advance. `object`: the table, topic, partition or broker that holds it back."""

    stage: HeldStage
    object: str
    reason: str


class Move(Wire):
    """An order to move the checkpoint of a feed to `ts`. Events above `ts` are sent, whether they were sent before or
    not. The order belongs to the feed's `revision`. `cut`: the feed is divided into shards in another way above `ts`.
    Each new shard begins at `ts`, because the old shards have sent all events up to it. `grows`: above `ts` rows are
    spread over another number of partitions, which is announced in all of them."""

    revision: int
    ts: int
    cut: bool = False
    grows: bool = False


class Recut(Wire):
    """An order to divide a feed into another number of shards. The present `shards` shards send all events up to
    `at_ts` and stop there; then the feed gets the number of its configuration. `grows`: as in Move."""

    shards: int
    at_ts: int
    grows: bool = False


class Applied(Wire):
    """States that a revision of a feed is in force for every event above `after_ts`. `from_ts`: the checkpoint before
    the revision. If it is lower than `after_ts`, the events between the two are not in the sink; if it is higher, they
    are sent again."""

    revision: int
    from_ts: int
    after_ts: int


class Skip(Wire):
    """An event that a feed leaves out because a user named it: a row event by `key` (its raw key in hex, as the error
    shows it), or a DDL by `ddl_job`. `table`: `database.table`."""

    commit_ts: int
    table: str
    key: str | None = None
    ddl_job: int | None = None
    reason: str


class ChangefeedInfo(Wire):
    """A changefeed. `checkpoint_ts`: every event at or below it is in the sink. `resolved_ts`: that of the tenant, as
    the worker has seen it. `lag_seconds`: the lag of the sink behind the tenant; null before a worker has reported.
    `rows`, `bytes`: the amounts that the sink has acknowledged; repeats after a crash count once. `since_ms`: the time
    at which the feed failed or began to retry. `skips`: events that users named; `skipped_events`: the number of events
    that were left out. `stopped`: tables that have stopped while the others continue. `revision` is raised by each
    change of the feed. `applied` is the newest revision in force; null: the one with which the feed was created."""

    changefeed_id: str
    state: State
    sink_uri: str
    config: dict[str, Any]
    start_ts: str
    end_ts: str | None
    created_ms: str
    checkpoint_ts: str
    resolved_ts: str | None = None
    lag_seconds: float | None = None
    held_by: list[HeldBy] = Field(default_factory=list)
    error: str | None = None
    since_ms: str | None = None
    node_id: str | None = None
    epoch: int = 0
    rows: int = 0
    bytes: int = 0
    retries: int = 0
    skipped_events: int = 0
    skips: list[Skip] = Field(default_factory=list)
    stopped: list[StoppedTableInfo] = Field(default_factory=list)
    revision: int = 0
    applied: Applied | None = None


class CreatedChangefeed(ChangefeedInfo):
    """The answer to CreateChangefeed. `warnings`: notes for the user. `left_out`: at most TABLES_MAX tables that the
    rules include and that are not sent."""

    warnings: list[str]
    left_out: list[LeftOutTable]


class ChangefeedList(Wire):
    """The changefeeds of a tenant, by id."""

    changefeeds: list[ChangefeedInfo]


class FeedShard(Wire):
    """The identity of a shard of a feed: one of the parts into which its rows are divided, each sent by one worker.
    `generation`: the time in ms at which the feed was created; a later feed of the same name has another one."""

    cluster_id: str
    tenant_id: str
    changefeed_id: str
    shard: int
    generation: int


class FeedWork(Wire):
    """A shard that a worker must hold, under `epoch`; a newer epoch fences this one. `start_ts`: where the shard begins
    if the sink has no progress of it. `secrets`: the sealed texts of the secrets that `sink_uri` refers to, by name; a
    secret whose name is missing does not exist. `moved`: the newest move of the checkpoint, which must be applied to a
    sink that has an earlier revision. `shards`: the number of shards of the feed. `known_ts`: a checkpoint of the shard
    that the sink has acknowledged; null: the sink may be empty. `cutting`: the shard ends at `end_ts`, where the feed
    is divided into other shards. Until then the shard writes as many partitions of a topic as before, whatever `config`
    says."""

    shard: FeedShard
    epoch: int
    sink_uri: str
    config: dict[str, Any]
    start_ts: int
    end_ts: int | None
    secrets: dict[str, str] = Field(default_factory=dict)
    revision: int = 0
    moved: Move | None = None
    skips: list[Skip] = Field(default_factory=list)
    shards: int = 1
    known_ts: int | None = None
    cutting: bool = False


class FeedReport(Wire):
    """A worker's report of a shard that it holds. `phase` `fenced`: another worker has taken over the shard.
    `checkpoint_ts` null: the sink was not opened yet. `resolved_ts`: that of the tenant, as the worker has seen it.
    `reached_ts`: no event above it was sent; events at it may have been sent. `since_ms`: the time at which the shard
    failed or began to retry."""

    shard: FeedShard
    epoch: int
    phase: Phase
    checkpoint_ts: int | None
    resolved_ts: int
    reached_ts: int | None = None
    rows: int = 0
    bytes: int = 0
    retries: int = 0
    since_ms: int | None = None
    held_by: list[HeldBy] = Field(default_factory=list)
    error: str | None = None
    applied: Applied | None = None
    skipped: int = 0
    stopped: list[StoppedTableInfo] = Field(default_factory=list)


class WorkerBeat(Wire):
    """`POST /upcall/v1/changefeeds/beats`: a worker renews the leases of the shards that it holds, and requests more
    work. `busy`: the tenants, as `cluster/tenant`, for which the worker has sent something lately."""

    node_id: str
    instance: str
    reports: list[FeedReport]
    busy: list[str] = Field(default_factory=list)


class FeedAssignments(Wire):
    """The answer of WorkerBeat: all shards that the worker must hold from now on. The worker stops all others.
    `quota_sharers`: for each tenant (`cluster/tenant`), the number of workers among which its rate quotas are divided;
    1 for a tenant that is not in it."""

    shards: list[FeedWork]
    quota_sharers: dict[str, int] = Field(default_factory=dict)
