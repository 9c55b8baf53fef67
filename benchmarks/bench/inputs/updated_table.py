"""A table in the version index: a base run of all its rows, and runs of updates above it, as files."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from bench.inputs.mixed_rows import STEP
from bench.inputs.pulled_pool import SNAPSHOT_TS
from bench.inputs.version_runs import base_run, runs_above
from tistream.format.run import RunRef
from tistream.storage.open import open_objects

RUNS, SHARE = 4, 100  # runs above the base, and each has a version for every SHARE rows


@dataclass(frozen=True, slots=True)
class UpdatedTable:
    """`updates`: versions above base_ts. `write_cpu_s`: processor seconds that making and writing the base took."""

    root: str
    rows: int
    updates: int
    runs: tuple[RunRef, ...]
    base_ts: int
    end_ts: int
    write_cpu_s: float

    @property
    def paths(self) -> list[str]:
        """The objects."""
        return [str(Path(self.root) / run.key) for run in self.runs]


def updated_table(root: Path, rows: int) -> UpdatedTable:
    """Write a table with the handles 1 to `rows`."""
    root.mkdir()
    objects, base_ts = open_objects(str(root)), SNAPSHOT_TS + STEP * (rows + 1)
    began = time.process_time()
    base = list(base_run(objects, rows, base_ts))
    took, each = time.process_time() - began, max(1, rows // SHARE)
    above = runs_above(objects, RUNS, each, rows, base_ts, 0.0)
    return UpdatedTable(str(root), rows, RUNS * each, (*base, *above), base_ts, above[-1].high_ts, took)
