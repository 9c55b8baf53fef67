"""Comparisons of what a changefeed has written with committed rows.

docs/changefeeds.md, "Comparing a topic with the pool", describes them."""

from typing import Any, Literal

from pydantic import Field

from tistream.wire.bulk.changefeeds import Skip, Ts
from tistream.wire.meta import StrictRequest
from tistream.wire.sorter import Wire

TOPIC = r"^[A-Za-z0-9._-]{1,249}$"
KEY_MAX = 3072  # characters of a bound of keys
DIFFERENCES_MAX = 100  # that an answer names


def _is_null(value: str | None) -> bool:
    return value is None


class VerifyChangefeed(StrictRequest):
    """`POST …/changefeeds/{id}/verify`: compare what the feed's sink holds with committed rows.

    `from_ts`, `to_ts`: the events with `from_ts` < commit_ts <= `to_ts` are compared. Default: the last minute up to
    the checkpoint. For a database both must be left out, because its tables are compared as they are. `table`:
    `database.table`, to compare only this table. `key_from`, `key_to`: of topics, to compare only rows of that table
    whose first column of the handle key lies between them, both inclusive. `repair_topic`: the topic into which missing
    events are written.
    """

    from_ts: Ts | None = None
    to_ts: Ts | None = None
    table: str | None = Field(default=None, min_length=3, max_length=2 * 64 * 4 + 1)
    key_from: str | None = Field(default=None, max_length=KEY_MAX)
    key_to: str | None = Field(default=None, max_length=KEY_MAX)
    repair_topic: str | None = Field(default=None, pattern=TOPIC)


class VerifyFeed(StrictRequest):
    """`POST /v1/changefeeds/verifications` of a worker: compare the events of a feed with `from_ts` < commit_ts <=
    `to_ts`, as VerifyChangefeed requests it. The other members are the feed's settings as the meta server stores
    them. `key_from` and `key_to` are sent only if they are not null: a worker of an earlier release rejects them."""

    cluster_id: str
    tenant_id: str
    changefeed_id: str
    sink_uri: str
    config: dict[str, Any]
    secrets: dict[str, str] = Field(default_factory=dict)  # sealed, by name
    skips: list[Skip] = Field(default_factory=list)
    from_ts: int
    to_ts: int
    start_ts: int = 0  # of the feed; 0: not known
    table: str | None = None
    key_from: str | None = Field(default=None, exclude_if=_is_null)
    key_to: str | None = Field(default=None, exclude_if=_is_null)
    repair_topic: str | None = None


class Difference(Wire):
    """An event that is not exactly once in the sink. `what`: `missing`: the sink does not have the event; `unexpected`:
    the sink has a message that the feed would not send; `repeated`: the sink has the event more often than it was
    committed. `key`: the values of the handle key, as the message has them. `offset`: that of the message; null if
    there is no message. Of files, `topic` is the file, or for a missing event the directory, and `offset` the number of
    the event in its file, from 0. Of Iceberg, `topic` is the table there."""

    what: Literal["missing", "unexpected", "repeated"]
    database: str
    table: str
    commit_ts: str
    topic: str
    partition: int
    offset: int | None
    key: dict[str, Any]


class VerifiedTable(Wire):
    """The result of a comparison for one table. `events`: the number of row events that the feed must have sent;
    `messages`: the number in the sink."""

    database: str
    table: str
    events: int
    messages: int
    missing: int
    unexpected: int
    repeated: int


class VerifiedWindow(Wire):
    """A window (`from_ts`, `to_ts`] of a table in which the sink does not hold what the feed has written. `events`: the
    number of events that were written. `messages`: the number that was found; if it is the same, their contents differ.
    `table` is empty if the window has more than 100 tables, whose fingerprints were added up."""

    database: str
    table: str
    from_ts: str
    to_ts: str
    events: int
    messages: int


class LeftOut(Wire):
    """A table of which some rows were not compared, and why."""

    database: str
    table: str
    reason: str


class FeedVerification(Wire):
    """The result of a comparison. `equal`: each event is in the sink exactly once, as it was written. `differences`:
    the first ones, by commit_ts. `repaired`: the number of events that were written to the repair topic. `windows`: the
    number of windows of the range that were compared by the fingerprints that are stored with the feed's progress.
    `window_differences`: the first windows that differ. `left_out`: what was not compared.

    `of` says what was compared, and so what `events` and `messages` count. `topics`: the messages of topics. `files`:
    the events in files. `tables`: the rows of tables in a database, as of `to_ts` (`from_ts` for some shards). `lake`:
    in Iceberg, the changes of the range in tables of changes, and the rows of the other tables as they are now.
    """

    changefeed_id: str
    from_ts: str
    to_ts: str
    equal: bool
    tables: list[VerifiedTable]
    differences: list[Difference]
    repaired: int = 0
    of: Literal["topics", "tables", "files", "lake"] = "topics"
    windows: int = 0
    window_differences: list[VerifiedWindow] = Field(default_factory=list)
    left_out: list[LeftOut] = Field(default_factory=list)
