"""`make hostile`: one run, its table on stdout, everything else in a folder; status 1 if the other tenant noticed more
than it may."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from support.hostile import run as phases
from support.hostile.run import Options, run

PHASES = 11  # that last as long as they are told to
WARM_S = 60.0


def main() -> int:
    """Status 0: the other tenant's answers and data were as if it was alone."""
    parser = argparse.ArgumentParser(prog="hostile", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="of all attacks; the calm is as long")
    parser.add_argument("--rate", type=int, default=500, help="row changes a second of the other tenant")
    parser.add_argument("--junk", type=int, default=5_000, help="objects that mean nothing")
    parser.add_argument("--idle", type=int, default=2_000, help="connections on which nothing comes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=(), choices=phases.PHASES, help="these kinds of attack alone")
    parser.add_argument("--out", type=Path, default=None, help="folder for logs and figures; default: a new one")
    given = parser.parse_args()
    scratch = given.out or Path(tempfile.mkdtemp(prefix="tistream-hostile-"))
    scratch.mkdir(parents=True, exist_ok=True)
    print(f"seed {given.seed}, {given.rate} rows/s, {given.minutes:g} minutes; everything is in {scratch}", flush=True)
    phase_s = 60 * given.minutes / PHASES
    options = Options(
        scratch, phase_s, WARM_S, phase_s, given.rate, given.junk, given.idle, given.seed, tuple(given.only)
    )
    outcome = run(options, lambda line: print(line, flush=True))
    for problem in outcome.problems:
        print(f"PROBLEM {problem}")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
