"""A sorter's job as production runs it: shards planned by the tick, run by Spark; nothing is committed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from bench.inputs.tasks import identity, task_files
from tistream.errors import TiStreamError
from tistream.storage.open import open_objects
from tistream_sorter.jobs.run import SparkRunner
from tistream_sorter.jobs.session import build_session
from tistream_sorter.shards import CutRules
from tistream_sorter.tick import conclude, first_state, plan, take


class SorterJob:
    """Calls take one tick over all of `keys`, from planning to the manifest that would be committed."""

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
        self._files = task_files(open_objects(root), keys, {})
        self._state = first_state(identity(snapshot_ts), 1)
        self._nonces = itertools.count(1)

    def __call__(self) -> tuple[list[str], int, dict[str, int]]:
        """(segments, their rows, what was counted)."""
        taken = take(self._state, self._files)
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
