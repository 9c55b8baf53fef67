"""`make sim SEEDS=1000 [FIRST=1]`: seeds of the simulation, in as many processes as there are cores."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import traceback
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one seed. `recovery_s`: from the end of the faults until every consumer had everything."""

    seed: int
    problem: str | None
    events: int = 0
    manifests: int = 0
    requests: int = 0
    strikes: int = 0
    recovery_s: float = 0.0


def one(seed: int) -> Result:
    """Run a seed."""
    from support.sim import world  # in the worker, where its imports take place

    try:
        found = world.run(seed)
    except Exception:
        return Result(seed, traceback.format_exc())
    over_ms = found.scheduler.now_ms - world.BEGIN_MS - world.CHAOS_MS
    audit, network = found.platform.objects.audit, found.platform.network
    events = len(found.consumers[0].events)
    return Result(seed, None, events, audit.manifests, network.requests, len(found.chaos.told), over_ms / 1000)


def main() -> int:
    """Exit status 1 if a seed fails; each failing seed is printed with what is wrong."""
    parser = argparse.ArgumentParser(prog="make sim")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--stop", action="store_true", help="end at the first failing seed")
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.seeds)
    done: list[Result] = []
    failed: list[int] = []
    begun = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(asked.workers, maxtasksperchild=200) as pool:
        for result in pool.imap_unordered(one, seeds):
            done.append(result)
            if result.problem is not None:
                failed.append(result.seed)
                print(f"\nseed {result.seed}: {result.problem}", flush=True)
                if asked.stop:
                    pool.terminate()
                    break
            if sys.stdout.isatty() or len(done) % 50 == 0:
                print(f"\r{len(done)} of {asked.seeds} seeds, {len(failed)} failed", end="", flush=True)
    _report(done, failed, time.monotonic() - begun)
    return 1 if failed else 0


def _report(done: list[Result], failed: list[int], seconds: float) -> None:
    good = [result for result in done if result.problem is None]
    print(f"\n{len(done)} seeds in {seconds:.0f} s, {len(failed)} failed{': ' if failed else ''}{sorted(failed) or ''}")
    if good:
        recovery = sorted(result.recovery_s for result in good)
        print(
            f"{sum(r.events for r in good)} events, {sum(r.manifests for r in good)} manifests, "
            f"{sum(r.requests for r in good)} requests, {sum(r.strikes for r in good)} strikes; "
            f"all served after the last fault: p50 {recovery[len(recovery) // 2]:.1f} s, max {recovery[-1]:.1f} s"
        )
    for seed in sorted(failed):
        print(f"again: make sim FIRST={seed} SEEDS=1")


if __name__ == "__main__":
    raise SystemExit(main())
