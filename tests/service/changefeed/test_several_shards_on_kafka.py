"""Several shards of a feed write into a real Kafka side by side, and wait for each other at DDLs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from support.feed_run import finish, holder_of
from support.kafka import committed
from support.pull_world import golden_world
from tistream.consume import open_protocol
from tistream.consume.feed_events import DdlEvent, ResolvedEvent
from tistream_changefeed.dispatch.ownership import WHOLE, Ownership
from tistream_cli.platform.local_kafka import LocalKafka

PARTITIONS, SHARDS = 5, 3
DOCUMENT = {
    "filter": {"rules": ["shop.orders", "shop.items", "shop.modpk"]},
    "sink": {"dispatchers": [{"matcher": ["*.*"], "partition": "index-value"}]},
}
Message = tuple[bytes | None, bytes | None]


def written(broker: LocalKafka, topic: str, parts: list[Ownership]) -> dict[int, list[Message]]:
    """What a reader of committed messages finds in each partition, without resolved messages, which come at times of
    their own."""
    world = golden_world("everything")
    uri = f"kafka://{broker.address}/{topic}?protocol=open-protocol&partition-num={PARTITIONS}&max-batch-size=1"
    holders = [holder_of(world, uri, DOCUMENT, topic, part=part) for part in parts]
    with ThreadPoolExecutor(len(holders)) as threads:
        list(threads.map(finish, holders))
    found: dict[int, list[Message]] = {}
    for number, seen in committed(broker.address, topic).items():
        found[number], resolved, ddl = [], 0, 0
        for _, key, value in seen:
            [event] = open_protocol.decode(key, value)
            if isinstance(event, ResolvedEvent):
                resolved = event.ts
                continue
            assert event.commit_ts > resolved, "nothing stands behind a resolved message of its ts"
            if isinstance(event, DdlEvent):
                ddl = event.commit_ts
            else:
                assert event.commit_ts > ddl or event.table != "modpk", "no row up to a DDL stands behind it"
            found[number].append((key, value))
        assert resolved == world.end_ts, "every partition has the last resolved message"
    return found


def test_shards_write_what_one_would_and_keep_the_order_at_ddls(broker: LocalKafka) -> None:
    whole = written(broker, "by-one", [WHOLE])
    assert written(broker, "by-several", [Ownership(shard, SHARDS) for shard in range(SHARDS)]) == whole
    assert all(whole.values())
