"""`make soak [ONLY=part,part]`: what is long or random, part by part; prints what each part did and how long it took.

A failed part does not stop the others. Exit status 1 if one failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support import needs

ROOT = Path(__file__).parents[2]
PYTEST = (sys.executable, "-m", "pytest", "-q", "-ra", "-p", "randomly")
OTHER_PARTS = ("compose", "kubernetes", "test_simulated_seeds.py")  # of tests/soak
FULL = {"TISTREAM_EFFORT": "full"}
SEEDS = 200  # of the simulation, beyond those of `make sim`'s first hundred and twenty
CHAOS_MINUTES = 5


@dataclass(frozen=True, slots=True)
class Part:
    """One command. `covers`: in words, for who reads the summary. `run`: which machine it needs (needs.py)."""

    name: str
    covers: str
    command: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)
    run: str = ""


PARTS = (
    Part(
        "unit",
        "unit tests with all examples, at random",
        (*PYTEST, "-n", "2", "--dist", "loadfile", "tests/unit"),
        FULL,
    ),
    Part("service", "service tests with all cases", (*PYTEST, "-n", "3", "--dist", "loadfile", "tests/service"), FULL),
    Part(
        "simulation",
        "120 seeds and every scenario on a virtual clock; recorded sets and random histories in one process",
        (*PYTEST, "-n", "2", "tests/simulation", "tests/soak/test_simulated_seeds.py"),
        FULL,
    ),
    Part(
        "e2e",
        "the platform as processes: 1, 4, 16 and 64 ranges, each way of arrival, each damage, each victim",
        (*PYTEST, "-n", "2", "--dist", "loadfile", "tests/e2e"),
        FULL,
    ),
    Part(
        "soak",
        "fixed runs of chaos and of a hostile tenant; tenants' keys, hung and killed services; any order of arrival",
        (*PYTEST, "tests/soak", *(f"--ignore=tests/soak/{name}" for name in OTHER_PARTS)),
        FULL,
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
    ),
    Part("mutants", "code that is broken on purpose, invariant by invariant", (sys.executable, "-m", "mutants.run")),
    Part("compose", "docker-compose.yml on a Docker engine", (*PYTEST, "tests/soak/compose"), run="compose"),
    Part("kubernetes", "deploy/k8s on a Kubernetes", (*PYTEST, "tests/soak/kubernetes"), run="kubernetes"),
)


def main(arguments: Sequence[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--only", default="", help=f"of {', '.join(part.name for part in PARTS)}, by commas")
    only = [name for name in parser.parse_args(arguments).only.split(",") if name]
    if unknown := sorted(set(only) - {part.name for part in PARTS}):
        parser.error(f"there is no part {', '.join(unknown)}")
    lines, failed = [], False
    for part in PARTS:
        if not only or part.name in only:
            outcome, seconds = _run(part)
            failed |= outcome == "FAILED"
            lines.append(f"{part.name:<12} {outcome:<8} {seconds:>7.0f} s  {part.covers}")
    print("\n".join(["", "What the soak did:", *lines]))
    return 1 if failed else 0


def _run(part: Part) -> tuple[str, float]:
    lacks = needs.missing(part.run) if part.run else []
    if lacks:
        print("\n".join(f"{part.name} is not run, missing: {line}" for line in lacks), flush=True)
        return "NOT RUN", 0.0
    print(f"\n--- {part.name}: {part.covers}", flush=True)
    began = time.monotonic()
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), **part.environ}
    status = subprocess.run(part.command, cwd=ROOT, env=environ, check=False).returncode
    return ("passed" if status == 0 else "FAILED"), time.monotonic() - began


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
