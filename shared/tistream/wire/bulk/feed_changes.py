"""Changes of a changefeed, and the events of its history (docs/changefeeds.md, "Changing a feed")."""

from typing import Any, Literal

from pydantic import Field

from tistream.wire.bulk.changefeeds import URI_MAX, HeldBy, State, Ts
from tistream.wire.meta import StrictRequest
from tistream.wire.sorter import Wire

SKIPS_MAX = 100  # skips of a feed
EVENTS_MAX = 500  # events of a feed's history; older ones are dropped
# The kinds of events in a feed's history. `applied`: a revision is in force from a ts on. `held`: a worker has begun to
# hold the feed. `cut`: the feed has other shards.
What = Literal[
    "created",
    "updated",
    "paused",
    "resumed",
    "applied",
    "skipped",
    "cut",
    "held",
    "running",
    "retrying",
    "failed",
    "finished",
    "table-stopped",
    "table-goes-on",
]


class UpdateChangefeed(StrictRequest):
    """`PUT …/changefeeds/{id}`: change a changefeed. A member that is left out keeps its value. `end_ts` null: the feed
    does not end."""

    sink_uri: str | None = Field(default=None, min_length=1, max_length=URI_MAX)
    end_ts: Ts | None = None
    config: dict[str, Any] | None = None


class ChangedFeed(StrictRequest):
    """An UpdateChangefeed that the API server and a worker have checked, as the API server sends it to the meta server:
    all members of the feed. `revision`: the revision of the feed that was changed. `secrets`: see ChangefeedPlan."""

    revision: int
    sink_uri: str = Field(min_length=1, max_length=URI_MAX)
    end_ts: Ts | None
    config: dict[str, Any]
    secrets: dict[str, str] = Field(default_factory=dict)


class ResumeChangefeed(StrictRequest):
    """`POST …/resume`: continue a feed that is paused or has failed. `checkpoint_ts`: continue after this ts instead of
    the sink's own progress. A higher ts leaves a gap; a lower one sends events again."""

    checkpoint_ts: Ts | None = None


class SkipEvent(StrictRequest):
    """`POST …/skip`: leave out one event, which exactly one of `key` and `ddl_job` identifies."""

    commit_ts: Ts
    table: str = Field(min_length=3, max_length=2 * 64 * 4 + 1, description="database.table")
    key: str | None = Field(default=None, pattern="^([0-9a-f]{2}){1,4096}$", description="the raw key in hex")
    ddl_job: str | None = Field(default=None, pattern="^[0-9]{1,18}$")
    reason: str = Field(min_length=1, max_length=500)


class Happening(Wire):
    """Something that happened to a feed, for its history. `by`: the caller; null: the platform. `from_ts`, `after_ts`
    of kind `applied`: see Applied."""

    what: What
    by: str | None = None
    reason: str | None = None
    revision: int | None = None
    from_ts: str | None = None
    after_ts: str | None = None


class FeedEvent(Happening):
    """An entry in the history of a feed, with its number and time."""

    seq: int
    at_ms: str


class FeedEvents(Wire):
    """The history of a feed, newest first."""

    events: list[FeedEvent]


class FeedLag(Wire):
    """The lag of a feed behind its tenant. `resolved_ts`: that of the tenant. `lag_seconds`: the time from
    `checkpoint_ts` to `resolved_ts`, by the upstream's clock. `read_seconds`: the part of it that the worker has not
    read yet."""

    changefeed_id: str
    state: State
    checkpoint_ts: str
    resolved_ts: str
    lag_seconds: float
    read_seconds: float | None
    held_by: list[HeldBy]
