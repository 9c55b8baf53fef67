"""The same work by general engines: join prewrites with their commits, order, write Parquet. None of the rules."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

COLUMNS = "p.key, p.start_ts, c.commit_ts, p.op_type, p.value, p.old_value, p.txn_source"


class DuckDb:
    """One SQL statement."""

    def __init__(self, paths: Sequence[str], target: str, threads: int) -> None:
        import duckdb  # noqa: PLC0415  # only in its own process

        self._connection = duckdb.connect(config={"threads": threads})
        self._connection.execute("SET enable_progress_bar = false")
        files = ", ".join(f"'{path}'" for path in paths)
        self._target = Path(target)
        self._statement = f"""
            COPY (SELECT {COLUMNS}
                  FROM (SELECT * FROM read_parquet([{files}]) WHERE type = 1) p
                  JOIN (SELECT key, start_ts, commit_ts FROM read_parquet([{files}]) WHERE type = 2) c
                  USING (key, start_ts)
                  ORDER BY c.commit_ts, p.start_ts, p.key)
            TO '{target}/rows.parquet' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)"""

    def __call__(self) -> list[str]:
        self._target.mkdir(exist_ok=True)
        self._connection.execute(self._statement)
        return [str(self._target / "rows.parquet")]


class Polars:
    """One lazy query, on POLARS_MAX_THREADS threads."""

    def __init__(self, paths: Sequence[str], target: str) -> None:
        self._paths, self._target = list(paths), Path(target)

    def __call__(self) -> list[str]:
        import polars as pl  # noqa: PLC0415  # only in its own process

        self._target.mkdir(exist_ok=True)
        entries = pl.scan_parquet(self._paths)
        columns = ["key", "start_ts", "op_type", "value", "old_value", "txn_source"]
        prewrites = entries.filter(pl.col("type") == 1).select(columns)
        commits = entries.filter(pl.col("type") == 2).select("key", "start_ts", "commit_ts")
        rows = prewrites.join(commits, on=["key", "start_ts"]).sort("commit_ts", "start_ts", "key")
        path = self._target / "rows.parquet"
        rows.collect().write_parquet(path, compression="zstd", compression_level=1)
        return [str(path)]


class SparkSql:
    """One DataFrame query in a session of its own, with room for all of it."""

    def __init__(self, paths: Sequence[str], target: str, master: str, memory: str = "6g") -> None:
        from pyspark.sql import SparkSession  # noqa: PLC0415  # only in its own process

        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.driver.memory": memory,
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.parquet.compression.codec": "zstd",
            "spark.ui.showConsoleProgress": "false",
        }
        builder = SparkSession.builder.master(master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        self._session = builder.getOrCreate()
        self._session.sparkContext.setLogLevel("ERROR")
        self._paths, self._target = list(paths), Path(target)

    def __call__(self) -> list[str]:
        shutil.rmtree(self._target, ignore_errors=True)
        entries = self._session.read.parquet(*self._paths)
        prewrites = entries.where("type = 1").select("key", "start_ts", "op_type", "value", "old_value", "txn_source")
        commits = entries.where("type = 2").select("key", "start_ts", "commit_ts")
        rows = prewrites.join(commits, ["key", "start_ts"]).orderBy("commit_ts", "start_ts", "key")
        rows.write.parquet(str(self._target))
        return [str(path) for path in sorted(self._target.glob("*.parquet"))]

    def close(self) -> None:
        """Stop Spark."""
        self._session.stop()
