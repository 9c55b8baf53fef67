"""`make soak [ONLY=part,part] [ORDER=seed]`: what is long or random, part by part; prints what each part did and how
long it took.

A failed part does not stop the others. Exit status 1 if one failed. Of each that failed it says how to run it again,
with the same order of tests and the same examples of hypothesis: ORDER is the seed of both, and else drawn.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support import needs

ROOT = Path(__file__).parents[2]
PYTEST = (sys.executable, "-m", "pytest", "-q", "-ra", "--durations=15")
OTHER_PARTS = ("compose", "kubernetes", "test_simulated_seeds.py")  # of tests/soak
FULL = {"TISTREAM_EFFORT": "full"}
SEEDS = 200  # of the simulation, beyond those of `make sim`'s first hundred and twenty
CHAOS_MINUTES = 5


@dataclass(frozen=True, slots=True)
class Part:
    """One command. `covers`: in words, for who reads the summary. `run`: which machine it needs (needs.py). `shuffled`:
    its tests are run in random order; those of containers share machines, which the last of them stops."""

    name: str
    covers: str
    command: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)
    run: str = ""
    shuffled: bool = False

    def with_seed(self, seed: int) -> tuple[str, ...]:
        """The command, with a seed where it takes one."""
        order = ("-p", "randomly", f"--randomly-seed={seed}", f"--hypothesis-seed={seed}")
        return (*self.command, *order) if self.shuffled else self.command


PARTS = (
    Part(
        "unit",
        "unit tests with all examples, at random",
        (*PYTEST, "-n", "2", "--dist", "loadfile", "tests/unit"),
        FULL,
        shuffled=True,
    ),
    Part(
        "service",
        "service tests with all cases",
        (*PYTEST, "-n", "3", "--dist", "loadfile", "tests/service"),
        FULL,
        shuffled=True,
    ),
    Part(
        "simulation",
        "120 seeds and every scenario on a virtual clock; recorded sets and random histories in one process",
        (*PYTEST, "-n", "2", "tests/simulation", "tests/soak/test_simulated_seeds.py"),
        FULL,
        shuffled=True,
    ),
    Part(
        "e2e",
        "the platform as processes: 1, 4, 16 and 64 ranges, each way of arrival, each damage, each victim",
        (*PYTEST, "-n", "2", "--dist", "loadfile", "tests/e2e"),
        FULL,
        shuffled=True,
    ),
    Part(
        "soak",
        "fixed runs of chaos and of a hostile tenant; tenants' keys, hung and killed services; any order of arrival",
        (*PYTEST, "tests/soak", *(f"--ignore=tests/soak/{name}" for name in OTHER_PARTS)),
        FULL,
        shuffled=True,
    ),
    Part(
        "seeds",
        f"{SEEDS} more seeds of the simulation",
        (sys.executable, "-m", "support.sim", "--seeds", str(SEEDS), "--first", "1001"),
    ),
    Part(
        "chaos",
        "several of everything killed, paused, moved, split and merged at random",
        ("scripts/chaos", "--minutes", str(CHAOS_MINUTES), "--rate", "500", "--seed", "1", "--many"),
    ),
    Part(
        "cuts",
        "services cut off from each other at random",
        ("scripts/chaos", "--minutes", str(CHAOS_MINUTES), "--rate", "500", "--seed", "1", "--cuts"),
        run="cuts",
    ),
    Part("mutants", "code that is broken on purpose, invariant by invariant", (sys.executable, "-m", "mutants.run")),
    Part("compose", "docker-compose.yml on a Docker engine", (*PYTEST, "tests/soak/compose"), run="compose"),
    Part("kubernetes", "deploy/k8s on a Kubernetes", (*PYTEST, "tests/soak/kubernetes"), run="kubernetes"),
)


def main(arguments: Sequence[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--only", default="", help=f"of {', '.join(part.name for part in PARTS)}, by commas")
    parser.add_argument("--order", type=int, default=random.SystemRandom().randrange(1_000_000), help="the seed")
    asked = parser.parse_args(arguments)
    only = [name for name in asked.only.split(",") if name]
    if unknown := sorted(set(only) - {part.name for part in PARTS}):
        parser.error(f"there is no part {', '.join(unknown)}")
    lines, failed = list[str](), list[str]()
    try:
        for part in PARTS:
            if not only or part.name in only:
                outcome, seconds = _run(part, asked.order)
                failed += [part.name] if outcome == "FAILED" else []
                lines.append(f"{part.name:<12} {outcome:<8} {seconds:>7.0f} s  {part.covers}")
    finally:  # somebody may end it after hours
        again = [f"again: make soak ONLY={name} ORDER={asked.order}" for name in failed]
        print("\n".join(["", "What the soak did:", *lines, *again]), flush=True)
    return 1 if failed else 0


def _run(part: Part, seed: int) -> tuple[str, float]:
    lacks = needs.missing(part.run) if part.run else []
    if lacks:
        print("\n".join(f"{part.name} is not run, missing: {line}" for line in lacks), flush=True)
        return "NOT RUN", 0.0
    command = part.with_seed(seed)
    print(f"\n--- {part.name}: {part.covers}\n{shlex.join(command)}", flush=True)
    began = time.monotonic()
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), **part.environ}
    status = subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode
    return ("passed" if status == 0 else "FAILED"), time.monotonic() - began


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
