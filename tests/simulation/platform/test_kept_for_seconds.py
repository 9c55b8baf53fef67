"""A tenant whose rows are kept for seconds, on the whole platform: what goes is told, what stays is as it was."""

from __future__ import annotations

from typing import Any

import httpx
import orjson
import pytest

from support.effort import cases
from support.sim.world import CALM_MS, LOAD_MS, RECOVERY_MS, World, simulated
from tistream.model.ts import physical_ms

KEEP_MS = 6_000
LATE_MS = 5_000  # until the newest checkpoints have come


class Asked:
    """Pulls of the whole tenant, one after the other, as a client from outside."""

    def __init__(self, world: World) -> None:
        self.earliest_ts = 0
        self.refused: list[int] = []
        self.events: list[dict[str, Any]] = []
        self.resolved_ts = 0
        self._world = world

    def run(self) -> None:
        """Fiber: from the tenant's first ts, which is gone, then from where the answer says."""
        world = self._world
        tenant = world.upstream.tenant
        url = f"{world.platform.of('api')[0].url}/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/changes"
        at = {"start_ts": str(world.upstream.snapshot_ts)}
        with httpx.Client(transport=world.platform.transport(), timeout=5, trust_env=False) as http:
            while self.resolved_ts < world.end_ts:
                answer = http.get(url, params=at)
                if answer.status_code == 410:
                    self.refused.append(answer.status_code)
                    self.earliest_ts = int(answer.json()["earliest_ts"])
                    at = {"start_ts": str(self.earliest_ts)}
                    self.events.clear()
                elif answer.status_code == 200:
                    self._take([orjson.loads(line) for line in answer.content.splitlines()])
                    at = {"cursor": self._cursor}
                else:
                    world.scheduler.sleep(200_000)

    def _take(self, lines: list[dict[str, Any]]) -> None:
        self.events += [line for line in lines if line["type"] in ("row", "ddl")]
        self.resolved_ts = int(lines[-1].get("resolved_ts", self.resolved_ts))
        self._cursor = lines[-1]["cursor"]


@pytest.mark.parametrize("seed", cases([2], [1, 5]))
def test_what_is_old_goes_and_is_told_and_the_rest_is_what_it_was(seed: int) -> None:
    with simulated(seed, script=[], retention_ms=KEEP_MS) as world:
        scheduler, outside = world.scheduler, world.platform.outside
        world.chaos.begin(lambda: True)  # which starts everybody, and has nothing in its script
        scheduler.start(outside, "upstream", world._push)
        live = world.consumers[1]
        scheduler.start(outside, "stream", live.follow)
        scheduler.run(lambda: bool(world.end_ts) and live.resolved_ts >= world.end_ts, LOAD_MS + CALM_MS + RECOVERY_MS)
        scheduler.run(lambda: False, LATE_MS)
        asked = Asked(world)
        scheduler.start(outside, "asked", asked.run)
        scheduler.run(lambda: asked.resolved_ts >= world.end_ts > 0, RECOVERY_MS)
        assert not scheduler.failures, scheduler.failures[0]
        assert not world.tracebacks.found, world.tracebacks.found[0]
        audit = world.platform.objects.audit
        assert not audit.problems, audit.problems
        truth = world.upstream.cluster.truth.events
        assert live.events == truth, "who is never that late misses nothing"
        assert asked.refused
        kept_ms = physical_ms(asked.resolved_ts) - physical_ms(asked.earliest_ts)  # the last watermark is the newest
        assert KEEP_MS <= kept_ms < LOAD_MS + CALM_MS, "something went, and nothing too early"
        assert asked.resolved_ts >= world.end_ts
        assert asked.events == [event for event in truth if int(event["commit_ts"]) > asked.earliest_ts]
        assert audit.deletes
