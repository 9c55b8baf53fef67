"""A BR full backup to base chunks: the work of executors, and RocksDB alone, which iterates over the same files."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import rocksdict

from bench.inputs.changes import TENANT
from bench.inputs.mixed_rows import TABLE_ID
from tistream.schema.tidb.meta_change import record_span
from tistream.storage.backups.backup_reader import open_backup, read_pairs
from tistream.storage.open import open_objects
from tistream_ingest.backfill.chunk_job import BackupWork, write_backup_chunks
from tistream_ingest.backfill.chunk_units import plan_backup


class BackupChunks:
    """A call writes every chunk of the backup into a new folder. Returns the rows of the chunks."""

    def __init__(self, root: str, folder: str) -> None:
        self._backup, self._folder, self._numbers = open_objects(root), Path(folder), itertools.count(1)

    def __call__(self) -> int:
        place = self._folder / str(next(self._numbers))
        place.mkdir(parents=True)
        objects, found = open_objects(str(place)), open_backup(self._backup)
        planned = plan_backup([record_span(TABLE_ID)], read_pairs(self._backup, found), found.end_version)
        for unit in planned.units:
            done = write_backup_chunks(objects, self._backup, BackupWork(TENANT, "b1", found.end_version, unit))
            assert done.failed is None, done
        return sum(pq.read_metadata(path).num_rows for path in place.rglob("chunk-*"))


class RocksIteration:
    """A call iterates over the entries of the files in a Python loop, and writes nothing. Returns their number."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = list(files)

    def __call__(self) -> int:
        count = 0
        for file in self._files:
            with tempfile.TemporaryDirectory() as folder:
                database = rocksdict.Rdict(f"{folder}/db", rocksdict.Options(raw_mode=True))
                database.ingest_external_file([file])
                for _ in database.items():
                    count += 1
                database.close()
        return count
