"""A comparison of a real topic with the pool finds what is missing, strange or twice there, and sends it elsewhere."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Producer

from support import golden_kafka
from support.feed_run import CLOCK, StillView, finish, holder_of
from support.kafka import committed
from support.pull_world import World, golden_world
from support.waiting import PATIENCE_S
from tistream.errors import InvalidRequest
from tistream.pool.versions.reader import StoreReader
from tistream.wire.bulk.feed_verify import FeedVerification, VerifyFeed
from tistream_changefeed.hold.secret_keys import SecretKeys
from tistream_changefeed.sinks.kafka.target import KafkaTarget
from tistream_changefeed.sinks.kafka.topics import Topics
from tistream_changefeed.verify.verification import Verifications
from tistream_cli.platform.local_kafka import LocalKafka

PARTITIONS = 2
RULES = {"filter": {"rules": ["shop.*", "!shop.big", "!shop.busy"]}}
EXTENDED = "canal-json&enable-tidb-extension=true"


def uri(broker: LocalKafka, topic: str, protocol: str = "open-protocol") -> str:
    return f"kafka://{broker.address}/{topic}?protocol={protocol}&partition-num={PARTITIONS}"


def verified(world: World, sink_uri: str, **more: Any) -> FeedVerification:
    """What a worker finds of the whole set."""
    by = Verifications(
        ("*",),
        SecretKeys(None),
        lambda _: cast(Any, StillView(world)),
        CLOCK,
        world.budget,
        StoreReader(world.objects),
        longest_ms=int(PATIENCE_S * 1000),
        answer_s=PATIENCE_S,
    )
    asked = {"from_ts": world.snapshot_ts, "to_ts": world.end_ts, "config": RULES, "changefeed_id": "verified", **more}
    of = world.tenant
    return by.verify(VerifyFeed(cluster_id=of.cluster_id, tenant_id=of.tenant_id, sink_uri=sink_uri, **asked))


@pytest.mark.parametrize("protocol", ["open-protocol", EXTENDED, "debezium", "simple"])
def test_a_topic_that_a_feed_has_written_is_equal(broker: LocalKafka, protocol: str) -> None:
    world, topic = golden_world("everything"), f"verified-{protocol.partition('&')[0]}"
    finish(holder_of(world, uri(broker, topic, protocol), RULES, topic))
    found = verified(world, uri(broker, topic, protocol), changefeed_id=topic)
    assert found.equal, found.differences[:3]
    assert len(found.tables) > 5
    assert all(one.events == one.messages for one in found.tables)
    commits = sorted(key.commit_ts for key, event in golden_kafka.rows().items() if event["table"] == "orders")
    part = verified(world, uri(broker, topic, protocol), from_ts=commits[len(commits) // 2], changefeed_id=topic)
    assert part.equal, part.differences[:3]
    assert 0 < sum(one.events for one in part.tables) < sum(one.events for one in found.tables)
    none = verified(world, uri(broker, topic, protocol), table="shop.nothing", changefeed_id=topic)
    assert (none.equal, none.tables, none.windows) == (True, [], found.windows), "it has no events, nor have they"
    assert found.windows > part.windows > 0, "what the feed has written is what it has recorded with its progress"


def test_what_differs_is_named_and_what_is_missing_is_written_elsewhere(broker: LocalKafka) -> None:
    world = golden_world("everything")
    whole = uri(broker, "whole") + "&max-batch-size=1"
    finish(holder_of(world, whole, RULES, "whole"))
    kept = {number: [seen[1:] for seen in messages] for number, messages in committed(broker.address, "whole").items()}
    rows = [
        (number, at) for number, seen in kept.items() for at, (key, _) in enumerate(seen) if b'"t":1' in (key or b"")
    ]
    lost, twice, strange = rows[10], rows[100], rows[200]
    Topics(KafkaTarget((broker.address,), "damaged", partition_num=PARTITIONS), "test").partitions("damaged")
    producer = Producer({"bootstrap.servers": broker.address})
    for number, messages in kept.items():
        for at, (key, value) in enumerate(messages):
            for _ in range({lost: 0, twice: 2}.get((number, at), 1)):
                text = value.replace(b'"v":', b'"v": ', 1) if (number, at) == strange else value
                size = (len(text) - 8).to_bytes(8) if text != value else text[:8]
                producer.produce("damaged", size + text[8:], key, number)
    producer.flush(PATIENCE_S)
    damaged = whole.replace("/whole?", "/damaged?")
    found = verified(world, damaged, repair_topic="repaired")
    assert not found.equal
    told = sorted((one.what, one.partition) for one in found.differences)
    altered = [("missing", strange[0]), ("unexpected", strange[0])]
    assert told == sorted([("missing", lost[0]), ("repeated", twice[0]), *altered])
    assert all(one.key or one.table for one in found.differences)
    assert found.repaired == 2
    repaired = committed(broker.address, "repaired")
    sent = [(number, *seen[1:]) for number, messages in repaired.items() for seen in messages]
    assert sorted(one for one in sent if b'"t":1' in one[1]) == sorted(
        (number, *kept[number][at]) for number, at in (lost, strange)
    )
    assert all(messages[-1][2] == bytes(8) for messages in repaired.values()), "a consumer can take them at once"
    (of,) = (one for one in found.differences if one.what == "repeated")
    ((name, value),) = ((name, str(value)) for name, value in list(of.key.items())[:1])
    keyed = {"table": f"{of.database}.{of.table}", "key_from": value, "key_to": value}
    assert [one.what for one in verified(world, damaged, **keyed).differences] == ["repeated"], name
    beyond = verified(world, damaged, **{**keyed, "key_from": f"{value}0", "key_to": None})
    assert (beyond.equal, beyond.windows) == (True, 0)
    of = found.differences[0]
    assert verified(world, damaged, table=f"{of.database}.{of.table}").tables[0].events > 0
    number, (key, value) = rows[-1][0], kept[rows[-1][0]][rows[-1][1]]
    Topics(KafkaTarget((broker.address,), "foreign", partition_num=PARTITIONS), "test").partitions("foreign")
    producer.produce("foreign", value, key, number)
    producer.flush(PATIENCE_S)
    foreign = whole.replace("/whole?", "/foreign?")
    finish(holder_of(world, foreign, RULES, "verified"))
    found = verified(world, foreign)
    (window,), (repeated,) = found.window_differences, found.differences
    assert (window.table, window.messages - window.events) == (repeated.table, 1)
    assert int(window.from_ts) < int(repeated.commit_ts) <= int(window.to_ts)


def test_what_cannot_be_compared_is_refused_with_the_way_out(broker: LocalKafka) -> None:
    world = golden_world("everything")
    absent = verified(world, uri(broker, "absent"), table="shop.k_str")
    assert {one.what for one in absent.differences} == {"missing"}, "a topic that does not exist has nothing"
    for sink_uri, more, text in (
        (uri(broker, "t", "canal-json"), {}, "enable-tidb-extension=true"),
        (uri(broker, "nowhere"), {"repair_topic": "nowhere"}, "is a topic of the feed"),
        (uri(broker, "whole"), {"repair_topic": "whole-progress"}, "is a topic of the feed"),
    ):
        with pytest.raises(InvalidRequest, match=text):
            verified(world, sink_uri, **more)
