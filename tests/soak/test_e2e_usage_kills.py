"""Who meters is killed: what is durable, or was told, is counted once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import golden
from support.golden import GoldenSet
from support.metered import Metered, agree, platform_on_a_wire, pull_all
from support.platform import _kill


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metered]:
    with platform_on_a_wire(tmp_path_factory.mktemp("usage")) as started:
        yield started


@pytest.fixture(scope="module")
def pushed(metered: Metered) -> GoldenSet:
    """Every file of it has come."""
    loaded = golden.load("large")
    metered.services.create_for(loaded)
    for delivery in loaded.deliveries:
        metered.bucket.put(delivery.key, delivery.data)
    pull_all(metered, loaded, "api", loaded.end_ts)
    return loaded


def test_who_is_killed_loses_nothing_of_what_is_durable_or_was_told(metered: Metered, pushed: GoldenSet) -> None:
    loaded = pushed
    late = golden.load_as("large", "7", "late")
    services, half = metered.services, len(late.deliveries) // 2
    before = agree(metered, loaded.tenant)["total"]
    services.create_for(late)
    for delivery in late.deliveries[:half]:
        metered.bucket.put(delivery.key, delivery.data)
    for name in ("sorter", "api", "dispatcher"):
        _kill(services._children[name].pid)
        services._children[name].wait()
        services.start_one(name)
    services.wait_ready()
    for delivery in late.deliveries[half:]:
        metered.bucket.put(delivery.key, delivery.data)
    came = pull_all(metered, late, "api", late.end_ts)
    total = agree(metered, late.tenant)["total"]
    assert int(total["bytes_in"]) == sum(len(file.data) for file in late.files), "who was killed counts once"
    assert (int(total["bytes_served"]), int(total["rows_served"])) == came
    size, rows = pull_all(metered, loaded, "api", loaded.end_ts)
    after = agree(metered, loaded.tenant)["total"]
    assert after["bytes_in"] == before["bytes_in"]
    assert int(after["bytes_served"]) == int(before["bytes_served"]) + size
    assert int(after["rows_served"]) == int(before["rows_served"]) + rows
    for kind, count in after["requests"].items():
        assert int(count) <= metered.on_the_wire(loaded.tenant).get(kind, 0)
