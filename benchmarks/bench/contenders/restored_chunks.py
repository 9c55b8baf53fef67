"""A table restored as Parquet files: the work of executors, one piece after the other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from bench.inputs.changes import TENANT
from bench.inputs.mixed_rows import TABLE_ID, table_info
from tistream.decode import warm
from tistream.format.run import RunRef
from tistream.model.span import WHOLE
from tistream.pool.versions.plan import IndexShard, records_of
from tistream.schema.tidb.create_table import Dialect, table_statements
from tistream.schema.tidb.table import parse_table
from tistream.storage.open import open_objects
from tistream.targets.restored_table import RestoredTable
from tistream_ingest.restore import restore_plan
from tistream_ingest.restore.chunk_io import ChunkWork, CountWork, ReadBackWork, ReadWork
from tistream_ingest.restore.chunk_target import NumberedTable, TargetSpec
from tistream_ingest.restore.object_targets import ParquetObjects


class RestoredChunks:
    """A call restores the table into a new folder: it is counted and cut into chunks, which are read, decoded, written
    and read back. Returns the rows written, and asserts that their fingerprint is that of the rows at the ts."""

    def __init__(self, root: str, runs: Sequence[RunRef], ts: int, folder: str) -> None:
        warm()
        self._objects, self._folder, self._numbers = open_objects(root), Path(folder), itertools.count(1)
        self._shards = (IndexShard(WHOLE, (), tuple(runs), ts, ts),)
        self._ts = ts

    def __call__(self) -> int:
        number, dialect = next(self._numbers), Dialect.TIDB
        place = self._folder / str(number)
        place.mkdir(parents=True)
        info = table_info()
        table = parse_table(info)
        name = ("bench", table.name)
        statements = table_statements(info, name, dialect)
        one = NumberedTable(1, RestoredTable(name, name, table.visible_columns, statements, f"{number:032x}"), info)
        spec = TargetSpec("parquet", str(place), dialect)
        target = ParquetObjects(open_objects(str(place)), dialect)
        target.begin(one, replace=False)
        asked = records_of(TABLE_ID)
        read = ReadWork(TENANT, self._ts, self._shards, asked)
        ends = CountWork(read, target.chunk_rows).run(self._objects)
        chunks = restore_plan.chunks_of([(asked, ends)])
        works = [
            ChunkWork(ReadWork(TENANT, self._ts, self._shards, chunk.wanted), one, chunk, spec, True)
            for chunk in chunks
        ]
        written = [work.run(self._objects) for work in works]
        back = [ReadBackWork(one, part, spec).run(self._objects) for part in target.parts(one, len(chunks))]
        assert written == back
        return sum(found.rows for found in back)
