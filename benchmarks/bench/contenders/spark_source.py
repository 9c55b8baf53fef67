"""A table's changes in Spark: through the data source `tistream`, and from Parquet files of the same rows."""

from __future__ import annotations

import json
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from bench.contenders.client import LISTED, Serve
from bench.inputs.mixed_rows import TABLE_ID
from bench.inputs.pulled_pool import SNAPSHOT_TS, source_of
from tistream.spark.session import build_session
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.schema_views import column_views
from tistream_client.spark import register

DAEMON = "support.client_daemon"


class ServeTable(Serve):
    """Serve, with the answers of ListDBs, TableSchema and ChangeParts."""

    def told(self, end_ts: int) -> Callable[[str], bytes]:
        """The answer to a call that is no pull, by its path."""
        version = source_of(MemoryObjectStore(), [], end_ts, 1, 1 << 20).table(end_ts, "bench", "mixed_0")
        assert version is not None
        columns = [one.model_dump() for one in column_views(version.table)]
        head = {"ts": str(end_ts), "table_id": str(TABLE_ID), "kind": "table", "schema_version": "0"}
        shape = json.dumps(head | {"columns": columns}).encode()
        part = {"start_ts": str(SNAPSHOT_TS), "end_ts": str(end_ts), "rows": 1}
        parts = json.dumps({"parts": [part]}).encode()

        def answer(path: str) -> bytes:
            return parts if "/changes/parts" in path else shape if "/schema" in path else LISTED % end_ts

        return answer


class SparkRead:
    """Reads every column of every row, and drops them. `folder` None: from the server; else from Parquet files, which
    are written first. `direct`: the option of the data source. A call reads all."""

    def __init__(self, port: int, master: str, folder: str | None, direct: bool = False) -> None:
        self._spark: SparkSession = build_session(master, "bench", {}, DAEMON)
        self._direct = str(direct).lower()
        register(self._spark)
        self._port, self._folder = port, folder
        if folder is not None:
            self._changes().write.mode("overwrite").parquet(folder)

    def __call__(self) -> None:
        self._frame().write.format("noop").mode("overwrite").save()

    def _frame(self) -> DataFrame:
        return self._changes() if self._folder is None else self._spark.read.parquet(self._folder)

    def _changes(self) -> DataFrame:
        where = {"url": f"http://127.0.0.1:{self._port}", "cluster": "7", "tenant": "bench", "table": "bench.mixed_0"}
        read = self._spark.read.format("tistream").options(**where, startingTs=str(SNAPSHOT_TS))
        return read.option("direct", self._direct).load()
