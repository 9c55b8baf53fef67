"""Runs one case of the tree that PYTHONPATH names, and writes what it measured as JSON. `bench.check` starts it for
both trees, so it uses only what every commit's `bench` has."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from bench.measure import Bench


def main(case: str, rounds: int, out: Path) -> None:
    """Run the case with so many rounds of each comparison."""
    with tempfile.TemporaryDirectory(prefix=f"bench-{case}-") as folder:
        bench = Bench(Path(folder), rounds=rounds)
        importlib.import_module(f"bench.cases.{case.replace('-', '_')}").run(bench)
    found = {"samples": [asdict(one) for one in bench.samples], "figures": [asdict(one) for one in bench.figures]}
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
