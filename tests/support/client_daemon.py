"""Runs `pyspark.daemon` after importing the Spark data source, so that the workers that it forks need not."""

import httpx
import pyspark.sql.worker.plan_data_source_read
from pyspark.daemon import manager

import tistream_client.spark.source

__all__ = ["httpx", "pyspark", "tistream_client"]

if __name__ == "__main__":
    manager()
