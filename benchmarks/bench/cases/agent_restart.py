"""How long an agent's own work takes from its last file to the end of all scans."""

from __future__ import annotations

import statistics

from bench.contenders.agent import Restart
from bench.measure import Bench

WHAT = (
    "an agent of 10,000 regions begins at its last file: PD's regions, log ids, registrations and ends of scans, which "
    "are answered at once; one process, one thread, without gRPC"
)
REGIONS = 10_000
AIM_S = 30.0


def run(bench: Bench) -> None:
    """See WHAT."""
    for scale in bench.scales:
        group, regions = "restart", bench.sized(REGIONS, scale)
        bench.compare(group, {"tistream": Restart(regions)}, 5, regions, "regions", scale)
        own = [s.wall_s for s in bench.samples if (s.group, s.scale) == (group, scale)]
        bench.figure("restart, without gRPC", statistics.median(own), "s", AIM_S, scale=scale)
