"""A dispatcher on one core: 100 stores, a file a second each."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from bench.contenders.dispatcher import PlainFooters, Routing
from bench.inputs.changes import Load
from bench.measure import Bench

WHAT = (
    "100 stores x 1 file/s, read, routed to 4 tasks and encoded for their sorter, from a directory: processor seconds "
    "for a second of files, and bytes read per byte of changes routed, once each store's first file has told how long "
    "its end is; beside pyarrow reading the footers alone"
)
STORES, SECONDS = 100, 6
USUAL = 4
AIM_BYTES, AIM_CORES = 0.02, 1.0


@dataclass(frozen=True, slots=True)
class Size:
    """What each store writes in a second."""

    name: str
    transactions: int  # of all stores, a second
    value_bytes: int
    regions: int  # of each store: as many watermark rows has each file


SIZES = (
    Size("20,000 entries/s of 127 bytes in all, 100 regions a store", 10_000, 127, 100),
    Size("100 KiB a file, 100 regions a store", 10_000, 1_000, 100),
    Size("1 MiB a file, 100 regions a store", 100_000, 1_000, 100),
    Size("1 MiB a file, 1,000 regions a store", 100_000, 1_000, 1_000),
)


def run(bench: Bench) -> None:
    """See WHAT."""
    for scale in bench.scales:
        for size in SIZES:
            _measure(bench, size, scale)


def _measure(bench: Bench, size: Size, scale: int) -> None:
    stores = bench.sized(STORES, scale)
    load = Load(
        bench.sized(size.transactions, scale) * SECONDS,
        seconds=SECONDS,
        stores=stores,
        regions=stores * size.regions,
        tables=100,
        value_bytes=size.value_bytes,
    )
    root = bench.tmp / str(size.transactions) / str(size.value_bytes) / str(size.regions)
    ours = Routing(load, root)
    plain = PlainFooters(ours)
    ours()
    plain()
    ours.forget()
    contenders: dict[str, Callable[[], object]] = {"tistream": ours, "pyarrow, footers alone": plain}
    for _ in range(min(bench.rounds, SECONDS - 1)):
        ours.next()
        bench.compare(size.name, contenders, 1, stores, "files", scale, warm=False)
    bench.agree({"tistream": ours.rows, "pyarrow": plain.rows})
    own = [s for s in bench.samples if (s.group, s.contender, s.scale) == (size.name, "tistream", scale)]
    cores = statistics.median(sample.cpu_s for sample in own)
    read = ours.read_bytes / ours.routed_bytes
    bench.figure(f"{size.name}: processor", cores, "cores", AIM_CORES, scale=scale)
    bench.figure(f"{size.name}: bytes read per byte routed", read, "", AIM_BYTES, scale=scale)
    bench.figure(f"{size.name}: requests a file", ours.requests / ours.files, "requests", scale=scale)
    shutil.rmtree(root)
