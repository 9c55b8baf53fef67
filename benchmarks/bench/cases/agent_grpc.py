"""How fast an agent makes change files of TiKV's stream, over gRPC, and how late they are."""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from bench.contenders.agent_grpc import OverGrpc, PlainOverGrpc, Upstream
from bench.measure import Bench

WHAT = (
    "prewrites with values of 127 random bytes, every other one with an old value, and their commits, in messages of "
    "64 events, from another process: from gRPC to files in a directory, by the agent as it runs. The reference reads "
    "protobuf's objects row by row and writes one Parquet file"
)
ENTRIES, VALUE_BYTES = 300_000, 127
RATE, SECONDS = 20_000, 30
AIM, AIM_S = 300_000.0, 1.5


def run(bench: Bench) -> None:
    """See WHAT."""
    for scale in bench.scales:
        group, entries = "gRPC to files", bench.sized(ENTRIES, scale)
        with ExitStack() as stack:
            ports = [stack.enter_context(bench.remote(Upstream))() for _ in range(2)]
            agent = stack.enter_context(bench.remote(OverGrpc, ports[0], entries, VALUE_BYTES))
            plain = stack.enter_context(bench.remote(PlainOverGrpc, ports[1], entries, VALUE_BYTES))
            bench.compare(group, {"tistream": agent, "protobuf and pyarrow": plain}, 5, entries, "entries", scale)
            late_s = agent(RATE * SECONDS, RATE)
        own = [s for s in bench.samples if (s.group, s.contender, s.scale) == (group, "tistream", scale)]
        rate = entries / statistics.median(s.cpu_s for s in own)
        bench.figure("entries per core, with gRPC", rate, "entries/s", AIM, "more", scale=scale)
        bench.figure("from start_ts to the file at 20,000 entries/s, p99", late_s, "s", AIM_S, scale=scale)
