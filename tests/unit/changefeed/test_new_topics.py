"""A broker lists a new topic before it serves the topic's partitions."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from support.model_kafka import ModelKafka
from tistream import concurrency
from tistream.clock import ManualClock
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.sinks.kafka.target import KafkaTarget
from tistream_changefeed.sinks.kafka.topics import LISTED_LOOKS, LISTED_PAUSE_S, Topics


class Pauses(concurrency.SystemThreads):
    """No thread sleeps: the seconds are noted."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def pauses() -> Iterator[Pauses]:
    made = Pauses()
    with concurrency.installed(made):
        yield made


def new_topic(unserved: int) -> Topics:
    kafka = ModelKafka(ManualClock(4_000_000_000_000).monotonic_ms, Random(1))
    kafka.unserved = unserved
    topics = Topics(
        KafkaTarget(("b:1",), "new", partition_num=2), "test", clients=kafka.clients(lambda _: None, lambda: True)
    )
    assert topics.partitions("new") == 2
    return topics


@pytest.mark.parametrize("unserved", [0, 3, LISTED_LOOKS])
def test_the_ends_of_a_new_topic_are_asked_for_until_they_are_told(pauses: Pauses, unserved: int) -> None:
    assert new_topic(unserved).ends(["new", "absent"]) == {"new": {0: 0, 1: 0}, "absent": {}}
    assert pauses.seconds == [LISTED_PAUSE_S] * unserved


def test_partitions_that_are_not_served_for_long_are_a_failure_that_is_tried_again(pauses: Pauses) -> None:
    with pytest.raises(FeedFailed, match=r"new: .*NOT_LEADER_FOR_PARTITION") as found:
        new_topic(LISTED_LOOKS + 1).ends(["new"])
    assert found.value.failure.kind == "retry"
