"""`pyspark.daemon` with the kernel loaded: what it forks, each Python worker, has no import of its own to wait for.

Nothing may have started a thread when it forks: importing polars, pyarrow and numpy starts none.
"""

from pyspark.daemon import manager

from tistream_sorter.jobs import shard_io

__all__ = ["shard_io"]

if __name__ == "__main__":
    manager()
