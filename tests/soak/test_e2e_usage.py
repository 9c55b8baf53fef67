"""What is metered of a tenant is what the store and the access log say, on a whole platform on MinIO.

If who meters is killed, what is durable, or was told, is counted once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from support import golden, plain_http
from support.command import patient_command
from support.golden import GoldenSet
from support.metered import Metered, agree, platform_on_a_wire, pull_all
from support.platform import _kill
from support.waiting import eventually


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


def test_sums_are_those_of_the_bucket_the_access_log_and_the_wire(metered: Metered) -> None:
    one, other = golden.load_as("large", "8", "one"), golden.load_as("large", "8", "other")
    for loaded in (one, other):
        metered.services.create_for(loaded)
        for delivery in loaded.deliveries:
            metered.bucket.put(delivery.key, delivery.data)
    came = [pull_all(metered, one, name, one.end_ts) for name in ("api", "api-2", "api")]
    assert came[0][1] == came[1][1] > 100
    pull_all(metered, other, "api", other.end_ts)
    total = agree(metered, one.tenant)["total"]
    assert int(total["bytes_in"]) == sum(len(file.data) for file in one.files)
    assert int(total["bytes_served"]) == sum(size for size, _ in came)
    assert int(total["rows_served"]) == sum(rows for _, rows in came)
    agree(metered, other.tenant)

    def same_requests() -> bool:
        before = [metered.on_the_wire(loaded.tenant) for loaded in (one, other)]
        told = [metered.usage(loaded.tenant)["total"]["requests"] for loaded in (one, other)]
        counted = [{kind: int(count) for kind, count in of.items() if int(count)} for of in told]
        return before == counted == [metered.on_the_wire(loaded.tenant) for loaded in (one, other)]

    eventually(same_requests)  # as soon as nothing is asked for a moment


def test_the_command_shows_usage_and_changes_quotas(metered: Metered, pushed: GoldenSet) -> None:
    key = pushed.tenant
    of = ("--cluster", key.cluster_id, "--tenant", key.tenant_id, "--url", metered.services.url)

    def run(*words: str) -> str:
        done = patient_command("tenant", *words, *of)
        assert not done.returncode, done.stderr
        return done.stdout

    table = [line.split() for line in run("usage").splitlines()]
    served = ["bytes_in", "bytes_stored", "bytes_served", "rows_served", "requests"]
    assert table[0] == ["hour", *served, "feed_rows", "feed_bytes"]

    def bytes_in() -> int:
        return int(next(line.split() for line in run("usage").splitlines() if line.startswith("total"))[1])

    eventually(lambda: bytes_in() > 0)
    assert json.loads(run("usage", "--from", "2020-01-01", "--to", "2020-01-02", "--json"))["hours"] == []
    eventually(lambda: json.loads(run("quotas", "stored_bytes=1", "pulls_at_once=5"))["stored_bytes_exceeded"])
    found = json.loads(run("quotas", "stored_bytes=default"))
    assert (found["stored_bytes"], found["pulls_at_once"], found["stored_bytes_exceeded"]) == (None, 5, False)
    wrong = patient_command("tenant", "quotas", "unheard=1", *of)
    assert wrong.returncode != 0
    assert "unheard" in wrong.stderr
    for query in ("?from=x", "?from=1&from=2", "?since=1", "?from=5&to=1"):
        url = f"{metered.services.url}/v1/clusters/{key.cluster_id}/tenants/{key.tenant_id}/usage{query}"
        assert plain_http.patient_get(url).status_code == 400


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
