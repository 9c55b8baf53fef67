"""A sorter's job as production runs it: shards planned by the tick, run by Spark; nothing is committed."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench.inputs.tasks import identity, task_files
from tistream.errors import TiStreamError
from tistream.storage.open import open_objects
from tistream_sorter.jobs.run import SparkRunner
from tistream_sorter.spark.session import build_session
from tistream_sorter.state.task_state import first_state
from tistream_sorter.task.tick import TaskFile, apply_files, conclude, plan
from tistream_sorter.upkeep.shards import CutRules

COPIES = 8  # names under which each file is there: what a worker knows of a file it has seen must not help it


class SorterJob:
    """Calls take one tick over all of `keys`, from planning to the manifest that would be committed. Each call has the
    files under new names."""

    def __init__(
        self,
        root: str,
        keys: Sequence[str],
        snapshot_ts: int,
        master: str,
        shard_bytes_min: int = 8 << 20,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        session = build_session(master, "bench", settings or {})
        self._runner = SparkRunner(session, root)
        self._runner.warm()
        self._cut = CutRules(self._runner.slots, shard_bytes_min)
        objects = open_objects(root)
        files = task_files(objects, keys, {})
        self._files = itertools.cycle([_linked(Path(root), files, number) for number in range(COPIES)])
        self._state = first_state(identity(snapshot_ts), 1)
        self._nonces = itertools.count(1)

    def __call__(self) -> tuple[list[str], int, dict[str, int]]:
        """(segments, their rows, what was counted)."""
        taken = apply_files(self._state, next(self._files))
        tick = plan(self._state, taken, f"{next(self._nonces):016x}", self._cut)
        results = self._runner.run(tick.shards)
        for result in results:
            if result.bad_files or result.failed:
                raise TiStreamError(f"{result.bad_files} {result.failed}")
        manifest, _ = conclude(tick, results, 0)
        keys = [segment.key for segment in manifest.segments]
        return keys, sum(segment.rows for segment in manifest.segments), manifest.counters

    def close(self) -> None:
        """Stop Spark."""
        self._runner.close()


def _linked(root: Path, files: Sequence[TaskFile], number: int) -> list[TaskFile]:
    """The same files under other names."""
    out = []
    for file in files:
        key = f"{file.ref.key}.{number}"
        if not (root / key).exists():
            os.link(root / file.ref.key, root / key)
        out.append(replace(file, ref=replace(file.ref, key=key)))
    return out
