"""How fast Spark reads a table's changes with `direct=true`, beside Parquet files of the same rows."""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from bench.contenders.spark_direct import Pulls, ServeDirect, Signs
from bench.contenders.spark_source import SparkRead
from bench.inputs.size import size
from bench.measure import Bench

WHAT = (
    "every column of the changes of a table of ten mixed columns, read by Spark local[2] and dropped: with direct=true "
    "from the row groups of segments, and from Parquet files that Spark wrote of the same rows; SIZE rows, usually a "
    "million, in one part; processor seconds of the JVM and the Python workers. Then what the API server does for it, "
    "beside a pull of the same rows as Arrow"
)
ROWS, MASTER = 1_000_000, "local[2]"
SOURCE, PARQUET, SIGNS, PULLS = "direct=true", "spark.read.parquet", "SignedChanges", "PullTable"


def run(bench: Bench) -> None:
    """See WHAT."""
    rows = size(ROWS)
    with ExitStack() as stack:
        port = stack.enter_context(bench.remote(ServeDirect, rows))()
        contenders = {
            SOURCE: stack.enter_context(bench.remote(SparkRead, port, MASTER, None, True)),
            PARQUET: stack.enter_context(bench.remote(SparkRead, port, MASTER, str(bench.tmp / "parquet"), True)),
        }
        bench.compare("all columns", contenders, amount=rows, unit="rows")
    with ExitStack() as stack:
        made = {
            SIGNS: stack.enter_context(bench.remote(Signs, rows)),
            PULLS: stack.enter_context(bench.remote(Pulls, rows)),
        }
        bench.compare("the API server", made, amount=rows, unit="rows")
    cpu = {
        name: statistics.median(one.cpu_s for one in bench.samples if one.contender == name)
        for name in (*contenders, *made)
    }
    bench.figure("processor seconds, beside Parquet", cpu[SOURCE] / cpu[PARQUET], "x")
    bench.figure("of the API server, beside a pull", cpu[SIGNS] / cpu[PULLS], "x")
