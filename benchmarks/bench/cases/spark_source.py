"""How fast Spark reads a table's changes through the data source, beside Parquet files of the same rows."""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from bench.contenders.spark_source import ServeTable, SparkRead
from bench.inputs.size import size
from bench.measure import Bench

WHAT = (
    "every column of the changes of a table of ten mixed columns, read by Spark local[2] and dropped: through the data "
    "source `tistream` from a server that sends a recorded answer, and from Parquet files that Spark wrote of the same "
    "rows; SIZE rows, usually a million, in one part; processor seconds of the JVM and the Python workers, without the "
    "server"
)
ROWS, MASTER = 1_000_000, "local[2]"
SOURCE, PARQUET = "tistream", "spark.read.parquet"


def run(bench: Bench) -> None:
    """See WHAT."""
    rows = size(ROWS)
    with ExitStack() as stack:
        port = stack.enter_context(bench.remote(ServeTable, rows, 0.0))()
        contenders = {
            SOURCE: stack.enter_context(bench.remote(SparkRead, port, MASTER, None)),
            PARQUET: stack.enter_context(bench.remote(SparkRead, port, MASTER, str(bench.tmp / "parquet"))),
        }
        bench.compare("all columns", contenders, amount=rows, unit="rows")
    cpu = {name: statistics.median(one.cpu_s for one in bench.samples if one.contender == name) for name in contenders}
    bench.figure("processor seconds, beside Parquet", cpu[SOURCE] / cpu[PARQUET], "x", 1.5)
