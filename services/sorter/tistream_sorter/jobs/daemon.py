"""`pyspark.daemon` with the kernel imported, so that the Python workers that it forks need not import it.

No thread may run when the daemon forks. The import of polars, pyarrow and numpy starts none.
"""

from pyspark.daemon import manager

from tistream_sorter.jobs import shard_io

__all__ = ["shard_io"]

if __name__ == "__main__":
    manager()
