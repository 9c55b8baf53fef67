"""Changes of a changefeed, and what happened to it (design-changefeeds.md 9.1)."""

from typing import Any, Literal

from pydantic import Field

from tistream.wire.bulk.changefeeds import URI_MAX, HeldBy, State, Ts
from tistream.wire.meta import StrictRequest
from tistream.wire.sorter import Wire

SKIPS_MAX = 100  # of a feed
EVENTS_MAX = 500  # of a feed; older ones are dropped
# What happened. `applied`: a revision is in force from a ts on. `held`: a worker has taken the feed.
What = Literal[
    "created",
    "updated",
    "paused",
    "resumed",
    "applied",
    "skipped",
    "held",
    "running",
    "retrying",
    "failed",
    "finished",
    "table-stopped",
    "table-goes-on",
]


class UpdateChangefeed(StrictRequest):
    """`PUT …/changefeeds/{id}`. A member that is left out stays as it is. `end_ts` null: the feed does not end."""

    sink_uri: str | None = Field(default=None, min_length=1, max_length=URI_MAX)
    end_ts: Ts | None = None
    config: dict[str, Any] | None = None


class ChangedFeed(StrictRequest):
    """An UpdateChangefeed that the API server and a worker have checked, as sent to the meta server: all members of
    the feed. `revision`: of the feed that was changed. `secrets`: as of ChangefeedPlan."""

    revision: int
    sink_uri: str = Field(min_length=1, max_length=URI_MAX)
    end_ts: Ts | None
    config: dict[str, Any]
    secrets: dict[str, str] = Field(default_factory=dict)


class ResumeChangefeed(StrictRequest):
    """`POST …/resume`. `checkpoint_ts`: go on behind it, not where the sink says. Forward leaves a gap, back sends
    again."""

    checkpoint_ts: Ts | None = None


class SkipEvent(StrictRequest):
    """`POST …/skip`: name one event, by exactly one of `key` and `ddl_job`."""

    commit_ts: Ts
    table: str = Field(min_length=3, max_length=2 * 64 * 4 + 1, description="database.table")
    key: str | None = Field(default=None, pattern="^([0-9a-f]{2}){1,4096}$", description="the raw key in hex")
    ddl_job: str | None = Field(default=None, pattern="^[0-9]{1,18}$")
    reason: str = Field(min_length=1, max_length=500)


class Happening(Wire):
    """Something that happened to a feed. `by`: the caller; null: the platform. `from_ts`, `after_ts` of `applied`: as
    of Applied."""

    what: What
    by: str | None = None
    reason: str | None = None
    revision: int | None = None
    from_ts: str | None = None
    after_ts: str | None = None


class FeedEvent(Happening):
    """A Happening with its place and time."""

    seq: int
    at_ms: str


class FeedEvents(Wire):
    """What happened to a feed, newest first."""

    events: list[FeedEvent]


class FeedLag(Wire):
    """How far a feed is behind the pool, and where. `resolved_ts`: of the pool. `lag_seconds`: from `checkpoint_ts` to
    it, by the clock of the upstream. `read_seconds`: the part of it that the worker has not read yet."""

    changefeed_id: str
    state: State
    checkpoint_ts: str
    resolved_ts: str
    lag_seconds: float
    read_seconds: float | None
    held_by: list[HeldBy]
