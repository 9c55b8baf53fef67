"""Decides which worker holds which shard of a changefeed, and in which states a feed may be changed. Pure.

A worker beats once a second. A beat renews the leases of the shards that it reports under their epochs, and its answer
lists the shards that it is to hold. A shard is free if no process holds it, its lease has expired, or its worker has
started anew; the next beat of a worker that holds less than its share takes it under the next epoch. A worker that
holds more than its share, or is being drained, is not given the surplus any more, which is then free. Two workers may
write one shard for a moment: the sink fences the lower epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tistream.errors import AlreadyDiffers, LimitReached, QuotaReached
from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import FEEDS_MAX, Applied, Move, Phase, Skip, State, StoredState
from tistream.wire.limits import Limits

LEASE_MS = 10_000
RENEW_MS = 5_000  # a lease is written anew when less than this is left of it


@dataclass(frozen=True, slots=True)
class Feed:
    """A row of the table `changefeeds`. `config`: JSON. `error`: why it has failed. `revision`: raised by each change.
    `begin_ts`: where a sink without progress begins, None: at `start_ts`. `moved`, `skips`, `applied`: as in FeedWork
    and FeedReport. `skipped`: events that were left out, by sink and shard: a feed that goes to another topic keeps
    them."""

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


@dataclass(frozen=True, slots=True)
class HeldShard:
    """A row of the table `feed_shards`. `instance`: the start of the process `node_id`. `lease_until_ms`: by the
    database's clock. `report`: a FeedReport as JSON, the newest."""

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
        """What names it."""
        return self.tenant, self.feed_id, self.shard

    def of(self, node_id: str, instance: str) -> bool:
        """Whether this start of a worker holds it."""
        return (self.node_id, self.instance) == (node_id, instance)

    def free(self, node_id: str, instance: str, now_ms: int) -> bool:
        """Whether a worker may take it."""
        restarted = self.node_id == node_id and self.instance != instance
        return self.node_id is None or self.lease_until_ms < now_ms or restarted


def assigned(
    shards: Sequence[HeldShard], node_id: str, instance: str, workers: Collection[str], now_ms: int
) -> list[HeldShard]:
    """The shards of running feeds that a worker holds after its beat: new ones under their next epoch, the others as
    they are. `workers`: the live workers that are not drained."""
    mine = [one for one in shards if one.of(node_id, instance)]
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
    """Check that a tenant may have another feed. Raises LimitReached."""
    if len(feeds) >= FEEDS_MAX:
        raise LimitReached(f"tenant {key} has {len(feeds)} changefeeds (at most {FEEDS_MAX}): remove one")


def check_quotas(limits: Limits, key: TenantKey, feeds: int, shards: int) -> None:
    """Check that a tenant may have this number of feeds, and of shards of all of them. Raises QuotaReached."""
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
    """Check that a feed that exists is the one that is wanted. Raises AlreadyDiffers."""
    same = (there.sink_uri, there.config, there.end_ts) == (wanted.sink_uri, wanted.config, wanted.end_ts)
    if not same or (start_given and there.start_ts != wanted.start_ts):
        raise AlreadyDiffers(
            f"changefeed {there.feed_id} exists already with another sink_uri, config, start_ts or end_ts: remove it "
            "first, or take another id"
        )


def shown_state(stored: StoredState, phase: Phase | None) -> State:
    """The state that users see. `phase`: of the newest report; None without one."""
    return "retrying" if stored == "running" and phase == "retrying" else stored
