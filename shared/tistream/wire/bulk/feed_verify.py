"""Whether a changefeed's topics hold what the pool has (docs/changefeeds.md, "Comparing a topic with the pool")."""

from typing import Any, Literal

from pydantic import Field

from tistream.wire.bulk.changefeeds import Skip, Ts
from tistream.wire.meta import StrictRequest
from tistream.wire.sorter import Wire

TOPIC = r"^[A-Za-z0-9._-]{1,249}$"
DIFFERENCES_MAX = 100  # that an answer names


class VerifyChangefeed(StrictRequest):
    """`POST …/changefeeds/{id}/verify`. Events with a commit_ts above `from_ts`, at or below `to_ts`; by default the
    last minute up to the checkpoint. `table`: `database.table`, alone. `repair_topic`: where events that the sink lacks
    are written."""

    from_ts: Ts | None = None
    to_ts: Ts | None = None
    table: str | None = Field(default=None, min_length=3, max_length=2 * 64 * 4 + 1)
    repair_topic: str | None = Field(default=None, pattern=TOPIC)


class VerifyFeed(StrictRequest):
    """`POST /v1/changefeeds/verifications` of a worker: the feed as it is, and the range to compare."""

    cluster_id: str
    tenant_id: str
    changefeed_id: str
    sink_uri: str
    config: dict[str, Any]
    secrets: dict[str, str] = Field(default_factory=dict)  # sealed, by name
    skips: list[Skip] = Field(default_factory=list)
    from_ts: int
    to_ts: int
    table: str | None = None
    repair_topic: str | None = None


class Difference(Wire):
    """An event that is not in the sink once. `missing`: it is not there; `unexpected`: a message that the feed would
    not send; `repeated`: more often than it was committed. `key`: the values of the handle key, as the message has
    them. `offset`: of the message; null: no message has it."""

    what: Literal["missing", "unexpected", "repeated"]
    database: str
    table: str
    commit_ts: str
    topic: str
    partition: int
    offset: int | None
    key: dict[str, Any]


class VerifiedTable(Wire):
    """A table in the range. `events`: row events that the pool has for the feed; `messages`: those in the sink."""

    database: str
    table: str
    events: int
    messages: int
    missing: int
    unexpected: int
    repeated: int


class FeedVerification(Wire):
    """What a comparison has found. `equal`: each event is in the sink exactly once. `differences`: the first ones, by
    commit_ts. `repaired`: events written to the repair topic."""

    changefeed_id: str
    from_ts: str
    to_ts: str
    equal: bool
    tables: list[VerifiedTable]
    differences: list[Difference]
    repaired: int = 0
