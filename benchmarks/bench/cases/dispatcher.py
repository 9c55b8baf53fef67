"""A dispatcher on one core: 100 stores, a file a second each."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from bench.contenders.dispatcher import PlainFooters, Routing
from bench.inputs.changes import Load
from bench.measure import Bench

WHAT = (
    "100 stores x 1 file/s, read, routed to 4 tasks and encoded for their sorter, from a directory: processor seconds "
    "for a second of files, and bytes read per byte of changes routed; beside pyarrow reading the footers alone"
)
STORES, SECONDS = 100, 3
AIM_BYTES, AIM_CORES = 0.02, 1.0


@dataclass(frozen=True, slots=True)
class Size:
    """What each store writes in a second."""

    name: str
    transactions: int  # of all stores, a second
    value_bytes: int


SIZES = (
    Size("20,000 entries/s of 127 bytes in all", 10_000, 127),
    Size("100 KiB a file", 10_000, 1_000),
    Size("1 MiB a file", 100_000, 1_000),
)


def run(bench: Bench) -> None:
    """See WHAT."""
    for size in SIZES:
        load = Load(
            size.transactions * SECONDS,
            seconds=SECONDS,
            stores=STORES,
            regions=STORES,
            tables=100,
            value_bytes=size.value_bytes,
        )
        ours = Routing(load, bench.tmp / str(size.transactions) / str(size.value_bytes))
        plain = PlainFooters(ours)
        ours()
        plain()
        for _ in range(min(bench.rounds, SECONDS - 1)):
            ours.next()
            bench.compare(
                size.name, {"tistream": ours, "pyarrow, footers alone": plain}, 1, STORES, "files", warm=False
            )
        bench.agree({"tistream": ours.rows, "pyarrow": plain.rows})
        cores = statistics.median(s.cpu_s for s in bench.samples if (s.group, s.contender) == (size.name, "tistream"))
        bench.figure(f"{size.name}: processor", cores, "cores", AIM_CORES)
        bench.figure(f"{size.name}: bytes read per byte routed", ours.read_bytes / ours.routed_bytes, "", AIM_BYTES)
        bench.figure(f"{size.name}: requests a file", ours.requests / ours.files, "requests")
