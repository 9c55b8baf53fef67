"""Shards of a feed: each partition has one writer, together they send what one would, and they wait for each other at
DDLs by what is in the sink."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.feed_batches import raw_events
from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.read.cursor import Place, Position
from tistream.wire.bulk.changefeeds import Applied, Move, Skip
from tistream_changefeed.core import barrier, progress
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.core.outgoing import SentMessage
from tistream_changefeed.core.progress import FIRST, Fence, PartitionTally, Progress, Revision
from tistream_changefeed.dispatch.ownership import WHOLE, Ownership
from tistream_changefeed.rows.window import raw_changes
from tistream_changefeed.sinks.kafka.feed_settings import parsed

URI = "kafka://broker:9092/changes?protocol=canal-json&enable-tidb-extension=true"
CONFIG = {"sink": {"dispatchers": [{"matcher": ["shop.*"], "topic": "of_{table}", "partition": "index-value"}]}}
FENCE, NOW = Fence(5, 3), Position(150)


def by_partition(messages: list[SentMessage]) -> dict[tuple[str, int], list[tuple[bytes | None, bytes | None]]]:
    out: dict[tuple[str, int], list[tuple[bytes | None, bytes | None]]] = {}
    for one in messages:
        out.setdefault((one.topic, one.partition), []).append((one.key, one.value))
    return out


def sent_by(ownership: Ownership) -> dict[tuple[str, int], list[tuple[bytes | None, bytes | None]]]:
    pipeline = parsed(URI, CONFIG).pipeline(ownership=ownership)
    messages: list[SentMessage] = []
    for events in raw_events("everything"):
        messages += pipeline.rows(events, lambda _: 5).messages.each()
    return by_partition(messages)


@pytest.mark.parametrize("shards", [2, 3, 7])
def test_shards_send_together_what_one_sends_and_no_partition_has_two(shards: int) -> None:
    whole = sent_by(WHOLE)
    parts = [sent_by(Ownership(shard, shards)) for shard in range(shards)]
    assert all(parts)
    places = [place for part in parts for place in part]
    assert len(places) == len(set(places))
    assert {place: messages for part in parts for place, messages in part.items()} == whole


def test_resolved_messages_and_ddls_of_a_shard_go_to_its_partitions() -> None:
    topics = {"changes": 5, "of_orders": 1, "of_items": 2}
    told = [parsed(URI, CONFIG).pipeline(ownership=Ownership(shard, 2)).resolved(1 << 40, topics) for shard in range(2)]
    places = sorted((one.topic, one.partition) for part in told for one in part)
    assert places == sorted((topic, number) for topic, count in topics.items() for number in range(count))
    assert all(told)


def test_one_shard_sends_the_letter_of_an_event_that_is_left_out() -> None:
    found: list[tuple[int, bytes]] = []
    for events in raw_events("everything"):
        pipeline = parsed(URI, {"filter": {"rules": ["shop.orders"]}}).pipeline()
        for batch in pipeline.filter.window(raw_changes(events)).rows:
            found += zip(batch.commit_ts.tolist(), batch.raw.to_pylist(), strict=True)
    ts, key = found[0]
    skip = Skip(commit_ts=ts, table="shop.orders", key=key.hex(), reason="too large")
    letters = []
    for shard in range(3):
        pipeline = parsed(URI, {}, [skip]).pipeline(ownership=Ownership(shard, 3))
        letters.append(sum(len(pipeline.rows(events, lambda _: 5).letters) for events in raw_events("everything")))
    assert sorted(letters) == [0, 0, 1]


def test_tables_with_rows_in_several_partitions_have_several_shards() -> None:
    shared = parsed(URI, CONFIG).pipeline(ownership=Ownership(0, 2)).shared
    assert shared is not None
    tables = (("shop", "orders"), ("shop", ""), ("other", ""), ("other", "orders"))
    assert [shared(name) for name in tables] == [True, True, True, False]
    assert parsed(URI, CONFIG).pipeline().shared is None, "one shard sends all rows"
    assert parsed(URI, {}).pipeline(ownership=Ownership(0, 2)).shared is None


def late(found: dict[int, Progress], until: Position = NOW, revision: int = 0) -> tuple[int, ...]:
    return barrier.behind(found, range(3), 1, FENCE, Revision(revision), until)


def test_every_expected_shard_is_waited_for_whether_it_has_progress_or_not() -> None:
    there = Progress(NOW, 100, FENCE)
    assert late({}) == (0, 2), "those without a record count too"
    assert late({0: there}) == (2,)
    assert late({0: there, 2: there}) == ()
    assert late({0: there, 2: there}, Position(150, Place.DDL, table_id=1)) == (), "done is behind each DDL of the ts"
    before = replace(there, at=Position(150, Place.ROW, start_ts=149))
    assert late({0: before, 2: there}, Position(150, Place.DDL, table_id=1)) == (0,)
    old = replace(there, fence=Fence(4, 9))
    assert late({0: old, 2: there}) == (0,), "a feed of the same name that was removed"
    assert late({0: replace(there, fence=Fence(5, 1)), 2: there}) == (), "an earlier holder has sent it all the same"


def test_a_shard_that_may_go_back_does_not_count() -> None:
    there = Progress(NOW, 100, FENCE)
    moved = replace(there, applied=Applied(revision=1, from_ts=150, after_ts=120))
    assert late({0: there, 2: moved}, revision=1) == (0,)
    assert late({0: moved, 2: moved}, revision=1) == ()
    assert late({0: moved, 2: there}) == (0,), "this holder is of an older revision: it is about to end"


def test_a_worker_of_a_revision_from_before_a_cut_sends_nothing() -> None:
    """As after a restore of the meta database: the shards of before the cut would send again what others have sent."""
    before = Progress(NOW, 100, FENCE)
    cut = replace(before, applied=Applied(revision=2, from_ts=150, after_ts=150))
    reason = r"revision 2 .* orders revision 1: .* create it under another id"
    with pytest.raises(FeedFailed, match=reason) as error:
        progress.check_revision([before, cut], FENCE, Revision(1), 2, "kafka")
    assert error.value.failure.kind == "retry", "the meta server may order it soon"
    progress.check_revision([before, cut], FENCE, Revision(2), 2, "kafka")
    progress.check_revision([before, cut], Fence(6, 1), FIRST, 2, "kafka")  # of an earlier feed of this name
    progress.check_revision([cut], FENCE, Revision(1), 1, "kafka")  # a feed of one shard sends on from its position


def test_a_feed_has_the_shards_that_its_newest_revision_has_written_with() -> None:
    """As after a restore of the meta database, in which later changes get the numbers of forgotten ones."""
    before = Progress(NOW, 100, FENCE, shards=3)
    cut = replace(before, applied=Applied(revision=2, from_ts=150, after_ts=150), shards=2)
    move, older = Move(revision=3, ts=120), Move(revision=2, ts=150)
    for revision, shards in ((Revision(2), 3), (Revision(3), 3), (Revision(3, older), 3), (Revision(2), 1)):
        with pytest.raises(
            FeedFailed, match=rf"2 shards .* orders {shards}: .* resume it with a checkpoint_ts"
        ) as error:
            progress.check_revision([before, cut, cut], FENCE, revision, shards, "kafka")
        assert error.value.failure.kind == "failed"
    progress.check_revision([before, cut, cut], FENCE, Revision(3), 2, "kafka")
    progress.check_revision([before, cut, cut], FENCE, Revision(3, move), 3, "kafka")  # all shards begin at one ts
    unknown = replace(cut, shards=None)  # of an earlier release
    progress.check_revision([before, unknown, unknown], FENCE, Revision(2), 3, "kafka")


def test_a_move_under_a_number_that_the_sink_has_seen_before_is_refused() -> None:
    there = Progress(NOW, 100, FENCE, applied=Applied(revision=2, from_ts=170, after_ts=150))
    same = Revision(2, Move(revision=2, ts=150))
    assert progress.revised(there, same, {}) == there
    assert progress.revised(there, Revision(2, Move(revision=1, ts=120)), {}) == there
    with pytest.raises(FeedFailed, match=r"moved to 120 by revision 2 .* moved it to 150 .* resume it") as error:
        progress.revised(there, Revision(2, Move(revision=2, ts=120)), {})
    assert error.value.failure.kind == "failed"
    assert progress.revised(there, Revision(3, Move(revision=3, ts=120)), {}).at == Position(120)


def test_the_record_keeps_the_newest_ddl_and_every_topic() -> None:
    tenant = TenantKey("7", "acme")
    ddl = Position(140, Place.DDL, table_id=1)
    before = Progress(NOW, 100, FENCE, topics={"a": (PartitionTally(2, 7),)}, ddl=ddl, ids={"a": "id1"}, shards=3)
    stored = before.knowing({"b": 1, "a": 2}, {"b": "id2"})
    found = progress.decode(tenant, progress.encode(tenant, stored), "log")
    assert found == stored
    assert (found.ddl, dict(found.topics)) == (
        ddl,
        {"a": (PartitionTally(2, 7), PartitionTally()), "b": (PartitionTally(),)},
    )
    assert found.ids == {"a": "id1", "b": "id2"}
    on, back = (progress.revised(found, Revision(1, Move(revision=1, ts=ts)), {"a": {0: 2}}) for ts in (145, 130))
    assert (on.ddl, back.ddl) == (ddl, None), "a DDL that is sent again is waited for when it is sent"


def test_numbers_of_shards_are_checked() -> None:
    assert parsed(URI, {"tistream": {"shards": 4}}).config.shards == 4
    for wrong in (0, 65, "x", True):
        with pytest.raises(InvalidRequest, match=r"tistream\.shards"):
            parsed(URI, {"tistream": {"shards": wrong}})
    with pytest.raises(InvalidRequest, match="one shard"):
        parsed("kafka://broker:9092/changes?protocol=simple", {"tistream": {"shards": 2}})
