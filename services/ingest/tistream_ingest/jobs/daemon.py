"""Runs `pyspark.daemon` after importing the kernels, so that the Python workers that it forks need not import them.

No thread may run when the daemon forks. The import of polars, pyarrow and numpy starts none.
"""

from pyspark.daemon import manager

from tistream_ingest.jobs import run

__all__ = ["run"]

if __name__ == "__main__":
    manager()
