"""Which shards a worker begins anew: one whose secret was put again, and one that met a passing error, after a
pause."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from random import Random

import httpx
import pytest
from prometheus_client import CollectorRegistry

from tistream.clock import ManualClock
from tistream.errors import InvalidRequest, Unavailable
from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import FeedAssignments, FeedReport, FeedShard, FeedWork
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.limits import Limits
from tistream_changefeed.hold.driver import Driver
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.hold.holder_threads import HolderThreads
from tistream_changefeed.hold.quota import BUSY_MS, TenantQuotas
from tistream_changefeed.hold.secret_keys import SecretKeys
from tistream_changefeed.metrics import ChangefeedMetrics

AWAY = "claim-check directory /mnt/claims does not answer"
SHARD = FeedShard(cluster_id="7", tenant_id="acme", changefeed_id="all", shard=0, generation=1)


class World:
    """A driver whose feeds are all refused, and the sealed secrets with which it tried to begin them."""

    def __init__(self) -> None:
        self.sealed: dict[str, str] = {"pw": "sealed-1"}
        self.feeds = [SHARD]
        self.broken: dict[str, Exception] = {}  # by feed: what the next attempt to begin it raises
        self.begun: list[dict[str, str]] = []
        self.takes_ms = 0  # how long each attempt to begin a feed takes
        self.epoch, self.revision = 1, 0
        http = HttpClient(transport=httpx.MockTransport(self._answer))
        metrics = ChangefeedMetrics(CollectorRegistry())
        self.clock = ManualClock(0)
        self.quotas = TenantQuotas(lambda _: Limits(feed_rows_per_second=100), self.clock)
        self.busy: list[list[str]] = []
        self.sharers: dict[str, int] = {}
        self.driver = Driver(
            MetaClient(http, "http://meta"),
            "worker-1",
            "i",
            self._new_holder,
            metrics,
            HolderThreads(ManualClock(0)),
            self.quotas,
            self.clock,
            Random(1),
        )

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.busy.append(json.loads(request.content)["busy"])
        self.reported = [FeedReport.model_validate(one) for one in json.loads(request.content)["reports"]]
        shards = [
            FeedWork(
                shard=one,
                epoch=self.epoch,
                sink_uri="kafka://b:1/t",
                config={},
                start_ts=1,
                end_ts=None,
                secrets=self.sealed,
                revision=self.revision,
            )
            for one in self.feeds
        ]
        return httpx.Response(200, content=FeedAssignments(shards=shards, quota_sharers=self.sharers).model_dump_json())

    def _new_holder(self, work: FeedWork) -> Holder:
        self.begun.append(work.secrets)
        self.clock.advance(self.takes_ms)
        if (broken := self.broken.pop(work.shard.changefeed_id, None)) is not None:
            raise broken
        raise InvalidRequest("the sink is not allowed")

    def tries_while_away(self) -> bool:
        """Whether a beat tries to begin a feed, whose directory is away."""
        before, self.broken = len(self.begun), {"all": Unavailable(AWAY)}
        self.driver.beat()
        return len(self.begun) > before


def test_a_shard_begins_anew_when_a_secret_was_put_again_and_not_before() -> None:
    world = World()
    world.driver.beat()
    world.driver.beat()
    assert world.begun == [{"pw": "sealed-1"}]
    world.sealed = {"pw": "sealed-2"}
    world.driver.beat()
    world.driver.beat()
    assert world.begun == [{"pw": "sealed-1"}, {"pw": "sealed-2"}]


def test_a_feed_that_cannot_be_begun_is_tried_again_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.feeds = [SHARD, SHARD.model_copy(update={"changefeed_id": "other"})]
    world.broken = {"all": RuntimeError("password hunter2")}
    world.driver.beat()
    assert len(world.begun) == 2
    assert world.driver.not_ready() is None
    (logged,) = [one for one in caplog.records if "could not be begun" in one.getMessage()]
    assert "test_driver.py" in logged.__dict__["traceback"]
    assert logged.exc_info is None
    assert "hunter2" not in str(logged.__dict__), "no secret in a log"
    world.clock.advance(2_000)
    world.driver.beat()
    first, other = world.reported
    assert (first.phase, other.phase) == ("retrying", "failed")
    assert first.error == "RuntimeError: the log of worker worker-1 says more"
    world.driver.beat()
    assert [one.phase for one in world.reported] == ["failed", "failed"], "it was tried again, and refused"
    assert len(world.begun) == 3


def test_a_shard_whose_holder_meets_a_passing_error_is_tried_again_and_the_feed_does_not_fail() -> None:
    world = World()
    world.broken = {"all": Unavailable(AWAY)}
    world.driver.beat()
    assert len(world.begun) == 1
    world.clock.advance(2_000)
    world.driver.beat()
    (first,) = world.reported
    assert (first.phase, first.error) == ("retrying", AWAY)
    assert len(world.begun) == 2, "a beat after the pause has begun it again"


def test_a_shard_that_cannot_be_begun_is_tried_again_after_pauses_that_double_up_to_a_minute() -> None:
    world = World()
    tried_s: list[int] = []
    for second in range(400):
        if world.tries_while_away():
            tried_s.append(second)
        if second:
            (report,) = world.reported
            assert (report.phase, report.error, report.held_by[0].reason) == ("retrying", AWAY, AWAY)
        world.clock.advance(1_000)
    pauses_s = [later - earlier for earlier, later in pairwise(tried_s)]
    for pause_s, doubled_s in zip(pauses_s, [1, 2, 4, 8, 16, 32, 60, 60, 60], strict=False):
        assert 0.8 * doubled_s <= pause_s <= 1.2 * doubled_s + 1, f"{pauses_s}: 20 percent, and a beat"
    assert len(pauses_s) >= 9


def test_the_beat_after_an_attempt_that_took_long_does_not_wait_for_another_one() -> None:
    world = World()
    world.takes_ms = 5_000
    assert world.tries_while_away()
    assert not world.tries_while_away(), "leases are renewed meanwhile"


@pytest.mark.parametrize("change", ["epoch", "revision", "away and back"])
def test_the_pause_of_a_shard_ends_when_its_order_changes_and_the_next_one_is_short(change: str) -> None:
    world = World()
    for _ in range(5):
        assert world.tries_while_away()
        world.clock.advance(60_000)
    assert world.tries_while_away()
    world.clock.advance(2_000)
    assert not world.tries_while_away(), "it pauses for half a minute"
    if change == "epoch":
        world.epoch += 1
    elif change == "revision":
        world.revision += 1
    else:
        world.feeds = []
        world.driver.beat()
        world.feeds = [SHARD]
    assert world.tries_while_away()
    assert not world.tries_while_away()
    world.clock.advance(2_000)
    assert world.tries_while_away(), "the pause was one of a first attempt"


def test_a_key_file_that_cannot_be_read_now_is_a_passing_error(tmp_path: Path) -> None:
    acme, uri = TenantKey("7", "acme"), "kafka://me:${secret:pw}@b:1/t"
    (tmp_path / "half").write_text("half of a k")
    for name in ("away", "half"):  # a mount that is away, and a file that is being replaced
        with pytest.raises(Unavailable, match=f"SECRETS_KEY_FILE .*{name}"):
            SecretKeys(tmp_path / name).values(acme, uri, {}, {"pw": "sealed"})
        with pytest.raises(Unavailable, match=f"SECRETS_KEY_FILE .*{name}"):
            SecretKeys(tmp_path / name).sealed(acme, {"pw": "hunter2"})


def test_a_worker_takes_its_share_of_a_quota_that_other_workers_use_too() -> None:
    world, acme = World(), TenantKey("7", "acme")
    world.quotas.charge(acme, 200, 10)
    world.sharers = {"7/acme": 4}
    world.driver.beat()
    assert world.busy == [["7/acme"]]
    world.clock.advance(8_000)
    slowed = world.quotas.charge(acme, 125, 10)
    assert slowed is not None
    assert slowed.wait_ms == 4_000, "125 rows at a quarter of 100 a second, of which a second is a burst"
    assert "of which each of 4 workers has its share" in slowed.held_by.reason
    world.clock.advance(BUSY_MS + 1)
    world.driver.beat()
    assert world.busy[-1] == [], "it has sent nothing lately"
