"""A BR full backup of one table in a directory, as large as wanted: SST files of regions, and their metadata."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.inputs.mixed_rows import STEP, TABLE_ID, keys, values
from bench.inputs.pulled_pool import SNAPSHOT_TS
from support.backup_files import Backup
from tistream.storage.open import open_objects

REGION_ROWS = 200_000
LONG_EACH, LONG_BYTES = 20, 300  # every so many rows the value is an entry of `default`, as TiKV does above 255 bytes


@dataclass(frozen=True, slots=True)
class FullBackup:
    """bytes: of all SST files."""

    root: str
    rows: int
    bytes: int

    @property
    def files(self) -> list[str]:
        """The SST files of the family `write`."""
        return sorted(str(path) for path in Path(self.root).rglob("*_write.sst"))


def put_backup(root: Path, rows: int) -> FullBackup:
    """Write a backup of a table with the handles 1 to `rows`."""
    root.mkdir()
    backup = Backup(SNAPSHOT_TS + STEP * (rows + 1))
    for number, begin in enumerate(range(1, rows + 1, REGION_ROWS)):
        end = min(rows, begin + REGION_ROWS - 1)
        listed = list(_rows(begin, end))
        start, after = (keys(np.array([TABLE_ID]), np.array([at]))[0].as_py() for at in (begin, end + 1))
        backup.region(f"1/{number}_1_ab_1", start, after, listed)
    target, size = open_objects(str(root)), 0
    for key, body in backup.finish().items():
        target.put(key, body)
        size += len(body) if key.endswith(".sst") else 0
    return FullBackup(str(root), rows, size)


def _rows(begin: int, end: int) -> Iterator[tuple[bytes, int, int, bytes]]:
    handles = np.arange(begin, end + 1)
    value = values().take(np.random.default_rng(begin).integers(0, len(values()), len(handles))).to_pylist()
    whole = keys(np.full(len(handles), TABLE_ID), handles).to_pylist()
    for handle, key, one in zip(handles.tolist(), whole, value, strict=True):
        commit_ts = SNAPSHOT_TS + STEP * handle
        stored = one if handle % LONG_EACH else one + b"\0" * (LONG_BYTES - len(one))
        yield key, commit_ts - STEP // 2, commit_ts, stored
