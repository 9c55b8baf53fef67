"""Decides which worker holds which shard of a changefeed, and in which states a feed may be changed. Pure.

A worker sends a heartbeat (a beat) once a second. A beat renews the leases of the shards that it reports under their
epochs. The answer lists the shards that the worker must hold. A shard is free if no process holds it, its lease has
expired, or its worker process has restarted. A worker that holds less than its share is assigned a free shard, under
the next epoch, when it sends its next beat. If a worker holds more than its share, or is being drained, its answer
leaves out the surplus shards, whose leases then expire. Two workers may write one shard for a moment: the sink fences
the lower epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tistream.errors import AlreadyDiffers, LimitReached, QuotaReached
from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import FEEDS_MAX, Applied, Move, Phase, Recut, Skip, State, StoredState
from tistream.wire.limits import Limits

LEASE_MS = 10_000
RENEW_MS = 5_000  # a lease is renewed in the database when less than this is left of it


@dataclass(frozen=True, slots=True)
class Feed:
    """A row of the table `changefeeds`. `config` is JSON. `error` says why the feed has failed. Each change raises
    `revision`. `generation` is the time of creation in Unix ms; a later feed of the same id has another one, unless it
    continues the progress that was kept of this one. `moved` is the newest order to move the checkpoint, `skips` are
    the events that users have named for it to leave out, and `applied` is the newest revision that is known to be in
    force.

    `begin_ts` is the ts after which the feed begins if its sink has no progress; None means `start_ts`. `skipped` is
    the number of events that were left out, by sink and shard, so that a feed that goes to another topic keeps them.
    `recut` is set while the feed waits for new shards: it has its old shards until these have all stopped at one ts.
    `ended` has, by sink and shard, the row events and bytes that replaced shards have sent.
    """

    tenant: TenantKey
    feed_id: str
    state: StoredState
    sink_uri: str
    config: str
    start_ts: int
    end_ts: int | None
    generation: int
    error: str | None = None
    revision: int = 0
    begin_ts: int | None = None
    moved: Move | None = None
    applied: Applied | None = None
    skips: tuple[Skip, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    recut: Recut | None = None
    ended: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    shards: int | None = None  # that it has by its load; None: those of its configuration

    @property
    def highest_revision(self) -> int:
        """The highest revision that is known: that of the feed, or a higher one that its sink has applied before the
        database was restored from a backup."""
        return max(self.revision, 0 if self.applied is None else self.applied.revision)


@dataclass(frozen=True, slots=True)
class HeldShard:
    """A row of the table `feed_shards`. `node_id` and `instance` name the worker that holds the shard, and its process
    start. `lease_until_ms` is Unix time by the database's clock. `report` is the newest FeedReport, as JSON."""

    tenant: TenantKey
    feed_id: str
    shard: int
    epoch: int
    node_id: str | None
    instance: str
    lease_until_ms: int
    checkpoint_ts: int
    report: str | None

    @property
    def key(self) -> tuple[TenantKey, str, int]:
        """What identifies the shard: tenant, feed id, number of the shard."""
        return self.tenant, self.feed_id, self.shard

    def held_by(self, node_id: str, instance: str) -> bool:
        """Whether this start of a worker holds the shard."""
        return (self.node_id, self.instance) == (node_id, instance)

    def free(self, node_id: str, instance: str, now_ms: int) -> bool:
        """Whether this start of a worker may be assigned the shard at `now_ms`, by the database's clock: no worker
        holds it, its lease has expired, or another start of the same worker holds it."""
        restarted = self.node_id == node_id and self.instance != instance
        return self.node_id is None or self.lease_until_ms < now_ms or restarted


def assigned(
    shards: Sequence[HeldShard], node_id: str, instance: str, workers: Collection[str], now_ms: int
) -> list[HeldShard]:
    """The shards that a worker must hold after its beat. Those that are new to it have their next epoch, the others are
    unchanged. `shards` are all shards of running feeds; `workers` are the live workers that are not being drained."""
    mine = [one for one in shards if one.held_by(node_id, instance)]
    if node_id not in workers:
        return []
    share = -(-len(shards) // len(workers))
    kept = sorted(mine, key=lambda one: one.key)[:share]
    free = sorted((one for one in shards if one.free(node_id, instance, now_ms)), key=lambda one: one.key)
    taken = [
        replace(one, epoch=one.epoch + 1, node_id=node_id, instance=instance, lease_until_ms=now_ms + LEASE_MS)
        for one in free[: share - len(kept)]
    ]
    return sorted([*kept, *taken], key=lambda one: one.key)


def check_room(feeds: Sequence[Feed], key: TenantKey) -> None:
    """Check that a tenant with these feeds may have another one. Raises LimitReached."""
    if len(feeds) >= FEEDS_MAX:
        raise LimitReached(f"tenant {key} has {len(feeds)} changefeeds, and {FEEDS_MAX} is the maximum: remove one")


def check_quotas(limits: Limits, key: TenantKey, feeds: int, shards: int) -> None:
    """Check that a tenant's quotas allow it this number of feeds, and this number of shards of all feeds together.
    Raises QuotaReached."""
    for what, name, wanted, most in (
        ("changefeeds", "changefeeds", feeds, limits.changefeeds),
        ("shards of changefeeds", "changefeed_shards", shards, limits.changefeed_shards),
    ):
        if most and wanted > most:
            raise QuotaReached(
                f"tenant {key} would have {wanted} {what}, and its quota is {most}: remove one, or raise the quota "
                f"{name} (`tistream tenant quotas`)"
            )


def check_same(there: Feed, wanted: Feed, *, start_given: bool) -> None:
    """Check that the existing feed `there` is equal to the requested feed. `start_given`: the request states a
    start_ts, so it is compared too. Raises AlreadyDiffers."""
    same = (there.sink_uri, there.config, there.end_ts) == (wanted.sink_uri, wanted.config, wanted.end_ts)
    if not same or (start_given and there.start_ts != wanted.start_ts):
        raise AlreadyDiffers(
            f"changefeed {there.feed_id} exists already with another sink_uri, config, start_ts or end_ts: remove it "
            "first, or take another id"
        )


def shown_state(stored: StoredState, phase: Phase | None) -> State:
    """The state of a feed that users see. `phase`: the phase in the newest report; None if there is no report."""
    return "retrying" if stored == "running" and phase == "retrying" else stored
