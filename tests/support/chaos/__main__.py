"""`make chaos`: one run, its table on stdout, everything else in a folder; status 1 if anything was wrong."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from support.chaos.run import Options, run
from support.compose.chaos import run as compose_run


def main() -> int:
    """Run `make chaos`. Status 0: no row was lost, repeated or misordered, and every recovery was in time."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=int, default=5_000, help="row changes a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recover", type=float, default=15.0, help="seconds until the lag must be under 5 s again")
    parser.add_argument("--many", action="store_true", help="several of everything; tasks moved, split and merged")
    parser.add_argument("--cuts", action="store_true", help="several of everything, cut off from each other")
    parser.add_argument("--compose", action="store_true", help="the containers of docker-compose.yml")
    parser.add_argument("--out", type=Path, default=None, help="folder for logs and the report; default: a new one")
    given = parser.parse_args()
    scratch = given.out or Path(tempfile.mkdtemp(prefix="tistream-chaos-"))
    scratch.mkdir(parents=True, exist_ok=True)
    print(f"seed {given.seed}, {given.rate} rows/s, {given.minutes:g} minutes; everything is in {scratch}", flush=True)
    options = Options(
        scratch,
        seconds=60 * given.minutes,
        seed=given.seed,
        rows_per_s=given.rate,
        recover_s=given.recover,
        many=given.many,
        cuts=given.cuts,
        simulate=("--txns-per-s", str(max(1, given.rate // 8)), "--ddl-per-min", "6"),
    )
    strike = compose_run if given.compose else run
    outcome = strike(options, lambda line: print(line, flush=True))
    (scratch / "chaos.json").write_text(json.dumps(outcome.as_json(), indent=1))
    print(outcome.summary())
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
