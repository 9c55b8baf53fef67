"""Many seeds, in as many processes as there are cores: what each came to, and what all of them have met together."""

from __future__ import annotations

import multiprocessing
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from support.sim import world

SEEDS_OF_A_PROCESS = 100

# What has to happen now and then, or the seeds prove little. `met` counts them; see `world.World.met`.
SOMETIMES = (
    "events told during the faults",
    "ticks during the faults",
    "checkpoints",
    "sources of pending rows",
    "segments written early",
    "source files deleted",
    "large jobs",
    "tasks lost to a newer epoch",
    "replaced processes that ended themselves",
    "owners that lost their lease",
    "commits in doubt",
    "jobs that died",
    "scans after a loss",
    "damaged files",
    "DDLs",
    "DDLs cancelled",
    "chains begun anew",
    "databases restored",
    "tenants whose tasks were given back",
    "stores retired",
    "stores that waited for a file",
    "stores that went to another dispatcher",
    "tasks moved",
    "nodes drained",
    "tasks sealed",
    "tasks that carried on others",
    "uploads that landed late",
    "chains that a late upload broke",
    "events of one table or database",
)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one seed. `recovery_s`: from the end of the load until every consumer had everything."""

    seed: int
    problem: str | None
    recovery_s: float = 0.0
    met: Counter[str] = field(default_factory=Counter)


def one(seed: int) -> Result:
    """Run a seed."""
    try:
        found = world.run(seed)
    except Exception:
        return Result(seed, traceback.format_exc())
    return Result(seed, None, found.recovery_s, found.met())


def many(seeds: Sequence[int], workers: int) -> Iterator[Result]:
    """Results as they come."""
    if workers == 1:
        yield from map(one, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=SEEDS_OF_A_PROCESS) as pool:
        yield from pool.imap_unordered(one, seeds)


def never_met(results: Sequence[Result]) -> list[str]:
    """What no seed has met."""
    total = sum((result.met for result in results), Counter[str]())
    return [what for what in SOMETIMES if not total[what]]
