"""What 100,000 subscribed regions cost an agent while nothing is written."""

from __future__ import annotations

import statistics

from bench.contenders.agent import AtRest
from bench.measure import Bench

WHAT = (
    "100,000 regions of three stores, each told a resolved_ts every second, in messages of 8, 32 and more regions of a "
    "request: from the messages in memory to the files' bytes; one process, one thread, without gRPC. A round is one "
    "second of the cluster"
)
REGIONS = 100_000
AIM_CORES, AIM_MIB = 0.3, 500


def run(bench: Bench) -> None:
    """See WHAT."""
    for scale in bench.scales:
        group = "a second at rest"
        agent = AtRest(bench.sized(REGIONS, scale))
        bench.compare(group, {"tistream": agent}, 9, REGIONS, "regions", scale, reset=agent.prepare)
        own = [s for s in bench.samples if (s.group, s.scale) == (group, scale)]
        bench.figure(
            "cores at rest, without gRPC", statistics.mean(s.cpu_s for s in own), "cores", AIM_CORES, scale=scale
        )
        memory = max(s.memory_bytes for s in own) / (1 << 20)
        bench.figure("memory of the process, with one second of messages", memory, "MiB", AIM_MIB, scale=scale)
