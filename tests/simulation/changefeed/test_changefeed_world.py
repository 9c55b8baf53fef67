"""Seeds of changefeeds under faults: each event is in Kafka once and in order, and no resolved message is wrong."""

from __future__ import annotations

import pytest

from support.effort import seeds
from support.sim import changefeed_world


@pytest.mark.parametrize("seed", seeds(1, 30))
def test_each_event_is_in_kafka_once_and_in_order_whatever_happens(seed: int) -> None:
    world = changefeed_world.run(seed)
    assert world.chaos.told, "something has befallen it"
    assert world.states["rows"]["revision"], "its load has cut the feed into other shards"
    assert all(epoch > 1 for epoch in world.epochs.values()), "each feed has had more than one holder"
