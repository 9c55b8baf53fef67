"""How fast an agent makes change files of TiKV's messages, on one core."""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from bench.cases.pull_decode import ONE_THREAD
from bench.contenders.agent import Entries, PlainEntries
from bench.measure import Bench

WHAT = (
    "prewrites with values of 127 random bytes, every other one with an old value, and their commits, in messages of "
    "64 events: from the messages in memory to the file's bytes; one thread, without gRPC. The reference reads "
    "protobuf's objects row by row and writes one Parquet file"
)
ENTRIES, VALUE_BYTES = 300_000, 127
AIM = 300_000.0


def run(bench: Bench) -> None:
    """See WHAT."""
    for scale in bench.scales:
        group, entries = "messages to a file", bench.sized(ENTRIES, scale)
        with ExitStack() as stack:
            contenders = {
                "tistream": stack.enter_context(bench.remote(Entries, entries, VALUE_BYTES, **ONE_THREAD)),
                "protobuf and pyarrow": stack.enter_context(
                    bench.remote(PlainEntries, entries, VALUE_BYTES, **ONE_THREAD)
                ),
            }
            bench.compare(group, contenders, 5, entries, "entries", scale)
        own = [s for s in bench.samples if (s.group, s.contender, s.scale) == (group, "tistream", scale)]
        rate = entries / statistics.median(s.cpu_s for s in own)
        bench.figure("entries per core, without gRPC", rate, "entries/s", AIM, "more", scale=scale)
