"""A feed's target in Kafka: what is taken, what is refused by name, and no password is repeated."""

from __future__ import annotations

import pytest

from tistream.errors import InvalidRequest, TargetNotAllowed
from tistream.model.ids import TenantKey
from tistream_changefeed.core.progress import Fence
from tistream_changefeed.core.shard import Order
from tistream_changefeed.sinks.allowed import check_hosts
from tistream_changefeed.sinks.kafka import target as settings
from tistream_changefeed.sinks.kafka.faults import failure_of
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_changefeed.sinks.kafka.producer_ids import shard_id
from tistream_changefeed.sinks.kafka.target import KafkaTarget, message_limit, partitions_wanted

ORDER = Order(TenantKey("7", "acme"), "orders", 0, Fence(1, 1), 100)


def test_a_uri_and_a_file_of_ticdc_are_taken() -> None:
    found = parsed(
        "kafka://127.0.0.1:9092,b:9093/topic?protocol=canal-json&partition-num=6&replication-factor=2&kafka-version=2.4.0"
        "&max-message-bytes=67108864&compression=lz4&enable-tidb-extension=true&auto-create-topic=false",
        {"tistream": {"delivery": "at-least-once"}},
    )
    assert found.target == KafkaTarget(
        ("127.0.0.1:9092", "b:9093"), "topic", 6, 2, False, 67108864, "lz4", "at-least-once"
    )
    assert any("kafka-version" in warning for warning in found.warnings)
    assert parsed("kafka://b:9092/topic", {}).target.delivery == "exactly-once"


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("kafka://user:hunter2@b:9092/t", "would be stored in clear"),
        ("kafka://b:9092/t?sasl-user=u&sasl-password=hunter2", "would be stored in clear"),
        ("kafka+ssl://b:9092/t?insecure-skip-verify=true", "insecure-skip-verify is not supported"),
        ("kafka://b:9092/t?protocol=csv", "csv is for object storage"),
    ],
)
def test_what_the_sink_cannot_do_yet_is_refused_by_name(uri: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text) as found:
        parsed(uri, {})
    assert "hunter2" not in str(found.value)


def test_only_hosts_of_the_list_are_written_to() -> None:
    check_hosts(("a:1", "b:2"), ("a", "b:2"))
    check_hosts(("a:1",), ("*",))
    for brokers, allowed in ((("a:1", "c:2"), ("a", "b:2")), (("b:3",), ("b:2",)), (("a:1",), ())):
        with pytest.raises(TargetNotAllowed, match="TISTREAM_CHANGEFEED__SINK_HOSTS"):
            check_hosts(brokers, allowed)


def test_delivery_decides_whether_the_producer_is_transactional() -> None:
    once = settings.producer(KafkaTarget(("b:1",), "t"), shard_id(ORDER))
    assert once["transactional.id"] == "tistream-7-acme-orders-0"
    least = settings.producer(KafkaTarget(("b:1",), "t", delivery="at-least-once"), shard_id(ORDER))
    assert "transactional.id" not in least
    assert all(one["enable.idempotence"] and one["acks"] == "all" for one in (once, least))


def test_acknowledgements_of_fewer_replicas_are_accepted_with_a_warning() -> None:
    document = {"tistream": {"delivery": "at-least-once"}}
    assert parsed("kafka://b:9092/t?required-acks=-1", document).warnings == ()
    (warning,) = parsed("kafka://b:9092/t?required-acks=1", document).warnings
    assert "required-acks = 1 is accepted and changes nothing" in warning


def test_partitions_and_sizes_are_bounded_by_the_topic() -> None:
    target = KafkaTarget(("b:1",), "t", partition_num=3)
    assert [partitions_wanted(target, there) for there in (2, 3, 8)] == [0, 3, 3]
    assert partitions_wanted(KafkaTarget(("b:1",), "t"), 8) == 8
    assert message_limit(target, 1_000_000) == 1_000_000 - 128 - 36
    assert message_limit(target, 1 << 30) == (10 << 20) - 36


@pytest.mark.parametrize(
    ("name", "kind"),
    [("MSG_SIZE_TOO_LARGE", "failed"), ("TOPIC_AUTHORIZATION_FAILED", "failed"), ("_FENCED", "retry"),
     ("_TRANSPORT", "retry"), ("NOT_ENOUGH_REPLICAS", "retry"), ("SOMETHING_NEW", "retry"),
     ("INVALID_REPLICATION_FACTOR", "retry")],
)  # fmt: skip
def test_what_may_pass_by_itself_is_tried_again(name: str, kind: str) -> None:
    assert failure_of(name, "text", "topic").failure.kind == kind
