"""A lock that comes below what TiKV holds, but above what it told, lives on: the sorter must not take it for dead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support import cdcpb
from support.agent_bench import BASE, CONFIG, INITIALIZED, Bench, change
from support.agent_model import KEYS
from support.agent_truth import Origin
from support.golden import Delivery
from support.sorter_world import SorterWorld
from tistream_agent.core import steps
from tistream_agent.core.keys import Region, encoded_bound

LEFT = Region(11, b"", encoded_bound(KEYS[12]), 1, 4, 1)
RIGHT = Region(12, encoded_bound(KEYS[12]), b"", 1, 4, 1)
SECOND = 1_000 << 18


class Cluster:
    """Two regions whose registrations share a request_id. `at`: seconds since the snapshot."""

    def __init__(self, one_log: bool = False) -> None:
        self.bench = Bench(config=replace(CONFIG, range_bounds=() if one_log else None))
        self.requests = self.bench.register([LEFT, RIGHT])
        assert self.requests[11].request_id == self.requests[12].request_id
        for request in self.requests.values():
            self.bench.receive(request, INITIALIZED)

    def ts(self, at: float) -> int:
        return BASE + int(at * SECOND)

    def tell(self, at: float, *regions: int) -> None:
        """TiKV tells regions (both) what the slower one has reached."""
        message = cdcpb.ChangeDataEvent()
        message.resolved_ts.regions.extend(regions or (11, 12))
        message.resolved_ts.ts, message.resolved_ts.request_id = self.ts(at), self.requests[11].request_id
        self.bench.step(steps.Received(self.requests[11].stream, [message.SerializeToString()]))

    def apply(self, **row: Any) -> None:
        self.bench.receive(self.requests[12], row)

    def require_both(self) -> None:
        """Time goes on, and the sorter has the late change, and the one of another key."""
        for at in (6.0, 7.0, 8.0):
            self.tell(at)
            self.cut()
        sorter = SorterWorld(Origin(CONFIG.tenant, BASE), [])
        for draft in self.bench.drafts:
            sorter.push(Delivery(0.0, draft.key, draft.data()))
            sorter.tick()
        assert sorter.stopped() == []
        assert sorter.progress_ts() >= self.ts(6.0)
        assert sorter.pool()["key"].to_list() == [KEYS[21], KEYS[20]]

    def cut(self) -> None:
        """Time passes until a file is written."""
        before = len(self.bench.drafts)
        while len(self.bench.drafts) == before:
            self.bench.run([], 100)


def test_a_lock_between_what_tikv_told_and_what_it_holds_is_not_dead_while_it_lives() -> None:
    cluster = Cluster()
    cluster.cut()
    # Region 12 has reached 2.0, but is told 1.0, which a lock in region 11 holds.
    cluster.tell(1.0)
    cluster.cut()
    late = {"key": KEYS[20], "start_ts": cluster.ts(1.5)}
    cluster.apply(type=1, op_type=1, value=b"late", **late)
    cluster.cut()
    # The lock in region 11 has ended; region 12 stays where it was, and the late lock lives.
    cluster.bench.receive(cluster.requests[12], change(KEYS[21], cluster.ts(2.6)))
    cluster.tell(2.0)
    cluster.cut()
    cluster.apply(type=2, op_type=1, commit_ts=cluster.ts(4.5), **late)
    cluster.cut()
    cluster.require_both()


# Attack: a lock that is late for its region comes, and lives, while the slowest region of its range log catches up
def test_a_lock_that_is_late_for_its_region_holds_its_range_log() -> None:  # R6
    cluster = Cluster(one_log=True)
    cluster.cut()
    cluster.tell(1.0, 11)
    cluster.tell(2.0, 12)
    cluster.cut()
    late = {"key": KEYS[20], "start_ts": cluster.ts(1.5)}
    cluster.apply(type=1, op_type=1, value=b"late", **late)
    cluster.cut()
    cluster.bench.receive(cluster.requests[12], change(KEYS[21], cluster.ts(2.6)))
    cluster.tell(3.0, 11)
    cluster.cut()
    cluster.apply(type=2, op_type=1, commit_ts=cluster.ts(4.5), **late)
    cluster.cut()
    cluster.require_both()
