"""What a model cluster has committed, against what the sorter makes of its agents' files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from support.agent_world import TENANT, AgentWorld
from support.golden import Delivery
from support.sorter_world import SorterWorld
from tistream.model.ids import TenantKey
from tistream.model.raw_row import EXPIRE


@dataclass(frozen=True)
class Origin:
    tenant: TenantKey
    snapshot_ts: int


def check(world: AgentWorld, files: Sequence[tuple[str, bytes]] | None = None) -> None:
    """The sorter's own ticks commit what the cluster committed, up to the end. `files`: in the order in which they
    arrive; default: that in which they were put."""
    cluster = world.cluster
    sorter = SorterWorld(Origin(TENANT, cluster.base_ts), [], raw=world.raw)
    for number, (key, data) in enumerate(world.files if files is None else files):
        sorter.push(Delivery(0.0, key, data))
        if number % 3 == 2:
            sorter.tick()
    sorter.tick()
    assert sorter.stopped() == []
    assert sorter.progress_ts() >= max((change[2] for change in cluster.committed), default=0)
    pool = sorter.pool()
    rows = pool.select("key", "start_ts", "commit_ts", "op", "value").rows()
    assert {(key, start, commit, op, value or b"") for key, start, commit, op, value in rows} == cluster.committed
    assert len(rows) == len(cluster.committed)
    if world.raw:
        expires = pool.select("op", "commit_ts", EXPIRE).rows()
        assert {one: cluster.expiry(*one[:2]).get("expire_ts_unix_secs") for one in expires} == {
            one: one[2] or None for one in expires
        }
    assert cluster.scans_below_hold == 0, "a registration at or below the GC hold"
