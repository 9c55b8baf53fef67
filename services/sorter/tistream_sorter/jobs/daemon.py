"""Spark's Python daemon (`pyspark.daemon`), with the sorter's matching code imported before it forks. So the workers
that it forks need not import that code. No thread may run when the daemon forks; importing polars, pyarrow and numpy
starts no thread."""

from pyspark.daemon import manager

from tistream_sorter.jobs import shard_io

__all__ = ["shard_io"]

if __name__ == "__main__":
    manager()
