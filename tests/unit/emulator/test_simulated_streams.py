"""The simulated cluster as an emulated TiKV: a client receives each committed change, under faults."""

from __future__ import annotations

import pytest

from support.effort import seeds
from support.puller import Puller
from support.stream_play import play
from tistream_upstream.config import Churn, ClusterConfig
from tistream_upstream.emulator.simulated import Faults, simulated_upstream

SECONDS = 6


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_a_client_receives_what_the_simulated_cluster_committed(seed: int) -> None:
    config = ClusterConfig(rows_per_s=120.0, txns_per_s=40.0, rows_max=100, churn=Churn(per_s=3.0), ddl_per_min=20.0)
    upstream, cluster = simulated_upstream(config, seed, Faults(per_s=2.0))
    base_ts = cluster.snapshot_ts
    puller = Puller(
        lambda start, end: upstream.pd_regions.scan(start, end, 1_024),
        upstream.config.cluster_id,
        [(b"m", b"n", base_ts), (b"t", b"u", base_ts)],
    )
    play(upstream, puller, base_ts + (SECONDS * 1_000 << 18), SECONDS * 1_000_000)
    until = puller.resolved
    committed = {}
    for region in cluster.regions.all:
        for entry in cluster.kv.scan(region, base_ts):
            if entry.commit_ts and entry.commit_ts <= until and not (entry.txn_source or 0) >> 8:
                change = (entry.start_ts, entry.op_type, entry.value or b"", entry.old_value or b"", 0)
                committed[entry.key, entry.commit_ts] = change
    assert len(committed) > 100
    assert {at: change for at, change in puller.changes.items() if at[1] <= until} == committed
    assert upstream.counters.errors["stream_ended"]
    assert puller.errors["not_leader"]
