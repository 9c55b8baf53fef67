"""Changefeeds: what a caller asks for, what a worker is given, and how far each is (design-changefeeds.md 9.1)."""

from typing import Annotated, Any, Literal

from pydantic import Field

from tistream.wire.meta import StrictRequest
from tistream.wire.sorter import Wire

FEED_ID = r"^[A-Za-z0-9][A-Za-z0-9-]{0,127}$"
URI_MAX = 4_096
CONFIG_BYTES_MAX = 256 << 10
FEEDS_MAX = 100  # of a tenant
TABLES_MAX = 1_000  # that an answer names
# What a worker reports of itself. `fenced`: another holder owns the shard.
Phase = Literal["running", "retrying", "failed", "finished", "fenced"]
State = Literal["running", "retrying", "paused", "failed", "finished", "removing"]
StoredState = Literal["running", "paused", "failed", "finished"]
HeldStage = Literal["pool", "filter", "encode", "sink", "ddl", "quota"]
FeedId = Annotated[str, Field(pattern=FEED_ID)]
Ts = Annotated[str, Field(pattern="^[0-9]{1,19}$")]


class CreateChangefeed(StrictRequest):
    """`POST …/changefeeds`. `start_ts` is exclusive; default: what the tenant has resolved. `end_ts` is inclusive.
    `config`: TiCDC's configuration file, as the JSON form of its TOML."""

    changefeed_id: FeedId
    sink_uri: str = Field(min_length=1, max_length=URI_MAX)
    start_ts: Ts | None = None
    end_ts: Ts | None = None
    config: dict[str, Any] = Field(default_factory=dict)


class NewChangefeed(StrictRequest):
    """A CreateChangefeed that the API server and a worker have checked, as sent to the meta server. `start_given`:
    whether the caller named `start_ts`; a repeated call without it means the same feed. `secrets`: as of
    ChangefeedPlan."""

    changefeed_id: FeedId
    sink_uri: str = Field(min_length=1, max_length=URI_MAX)
    start_ts: Ts
    start_given: bool
    end_ts: Ts | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    secrets: dict[str, str] = Field(default_factory=dict)


class CheckChangefeed(StrictRequest):
    """`POST /v1/changefeeds/checks` of a worker: whether it could run the feed."""

    cluster_id: str
    tenant_id: str
    wanted: CreateChangefeed
    secrets: dict[str, str] = Field(default_factory=dict)  # sealed, by name
    look: bool = True  # at the sink


class FeedTable(Wire):
    """A table that a feed sends: its topic, its partition rule, and its columns that are sent."""

    database: str
    table: str
    topic: str
    partition: str
    columns: list[str]


class ChangefeedPlan(Wire):
    """What a feed would do: its topics with their numbers of partitions, the first TABLES_MAX of the tables that exist
    now and their number, and what its user should know. `sink_uri`, `config`: what is stored of it, without passwords.
    `secrets`: those that were taken out, sealed, by name."""

    topics: dict[str, int]
    warnings: list[str]
    tables: list[FeedTable]
    table_count: int
    sink_uri: str
    config: dict[str, Any]
    secrets: dict[str, str] = Field(default_factory=dict)


class StoppedTableInfo(Wire):
    """A table of a feed that has stopped, because an event of it cannot be sent. Everything of it at or below
    `checkpoint_ts` is in the sink. `table` "": all tables of the database. `left`: the user has chosen that the feed's
    checkpoint does not wait for it."""

    database: str
    table: str
    checkpoint_ts: str
    reason: str
    left: bool


class FeedTables(Wire):
    """The first TABLES_MAX tables that a feed sends, their number, and the tables that have stopped."""

    tables: list[FeedTable]
    count: int
    warnings: list[str]
    stopped: list[StoppedTableInfo] = Field(default_factory=list)


class HeldBy(Wire):
    """What keeps a feed from advancing. `object`: a table, a topic, a partition, a broker."""

    stage: HeldStage
    object: str
    reason: str


class Move(Wire):
    """The order to move the checkpoint of a feed to `ts`: events above it are sent, whether they were sent before or
    not. It is part of `revision`."""

    revision: int
    ts: int


class Applied(Wire):
    """A revision of a feed that is in force: for every event above `after_ts`. `from_ts`: the checkpoint before. If it
    is lower than `after_ts`, the events between are not in the sink; if it is higher, they are sent again."""

    revision: int
    from_ts: int
    after_ts: int


class Skip(Wire):
    """An event that a feed leaves out because a person named it: a row event by `key` (its raw key in hex, as the error
    names it), or a DDL by `ddl_job`. `table`: `database.table`."""

    commit_ts: int
    table: str
    key: str | None = None
    ddl_job: int | None = None
    reason: str


class ChangefeedInfo(Wire):
    """A changefeed. `checkpoint_ts`: every event at or below it is in the sink. `resolved_ts`: of the pool, as the
    worker has seen it. `lag_seconds`: from the pool to the sink; null before a worker has reported. `rows`, `bytes`:
    that the sink has acknowledged, repeats after a crash not counted twice. `since_ms`: since when it retries or has
    failed. `skips`: events that a person named; `skipped_events`: those that were left out. `stopped`: tables
    that have stopped while the others go on. `revision` is raised by
    each change of the feed, and `applied` is the newest one in force; null: that with which it was created."""

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


class ChangefeedList(Wire):
    """The changefeeds of a tenant, by id."""

    changefeeds: list[ChangefeedInfo]


class FeedShard(Wire):
    """The name of a shard. `generation`: milliseconds at which its feed was created."""

    cluster_id: str
    tenant_id: str
    changefeed_id: str
    shard: int
    generation: int


class FeedWork(Wire):
    """A shard that a worker is to hold, under `epoch`; a newer one fences this one. `start_ts`: where a sink without
    progress begins. `secrets`: sealed texts of those that `sink_uri` refers to, by name; a name without one does not
    exist. `moved`: the newest move of the checkpoint, which is due in a sink that has an earlier revision. `shards`:
    how many the feed has. `known_ts`: a checkpoint of the shard that the sink has acknowledged; null: the sink may be
    empty."""

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


class FeedReport(Wire):
    """What a worker reports of a shard that it holds. `checkpoint_ts` null: the sink was not opened yet."""

    shard: FeedShard
    epoch: int
    phase: Phase
    checkpoint_ts: int | None
    resolved_ts: int
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
    """`POST /upcall/v1/changefeeds/beats`: a worker renews the shards that it holds, and asks for more."""

    node_id: str
    instance: str
    reports: list[FeedReport]


class FeedAssignments(Wire):
    """The answer of WorkerBeat: all shards that the worker is to hold from now on. It ends the others."""

    shards: list[FeedWork]
