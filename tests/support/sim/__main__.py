"""`make sim SEEDS=1000 [FIRST=1]`: exit status 1 if a seed fails; each failing one is printed with what is wrong."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter

from support.sim.seeds import Result, many, never_met

ENOUGH = 100  # seeds that meet everything which has to happen now and then


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="make sim")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    asked = parser.parse_args()
    if asked.seeds < 1 or asked.workers < 1:
        parser.error("--seeds and --workers are at least 1")
    done: list[Result] = []
    begun = time.monotonic()
    for result in many(range(asked.first, asked.first + asked.seeds), min(asked.workers, asked.seeds)):
        done.append(result)
        if result.problem is not None:
            print(f"\nseed {result.seed}: {result.problem}", flush=True)
        if sys.stdout.isatty() or len(done) % 50 == 0:
            failed = sum(one.problem is not None for one in done)
            print(f"\r{len(done)} of {asked.seeds} seeds, {failed} failed ", end="", flush=True)
    return _report(done, time.monotonic() - begun)


def _report(done: list[Result], seconds: float) -> int:
    failed = sorted(result.seed for result in done if result.problem is not None)
    recovery = sorted(result.recovery_s for result in done if result.problem is None)
    print(f"\n{len(done)} seeds in {seconds:.0f} s, {len(failed)} failed")
    if recovery:
        middle = recovery[len(recovery) // 2]
        print(f"everything served after the last file: p50 {middle:.1f} s, max {recovery[-1]:.1f} s (virtual)")
    for what, count in sorted(sum((result.met for result in done), Counter[str]()).items()):
        print(f"{count:>9}  {what}")
    missing = never_met(done) if len(done) >= ENOUGH else []
    for what in missing:
        print(f"never met: {what}")
    for seed in failed:
        print(f"again: make sim FIRST={seed} SEEDS=1")
    return 1 if failed or missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
