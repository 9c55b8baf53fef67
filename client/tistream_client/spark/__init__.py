"""The Spark data source `tistream`: changes and rows of a table as DataFrames, in batches and as a stream.

from tistream_client.spark import register

register(spark)
spark.read.format("tistream").options(url=URL, cluster="7", tenant="acme", table="shop.orders").load()

Every executor needs `tistream-client[spark]`. pyspark is imported by `register`, so that this package can be imported
without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format `tistream` known to a session."""
    from tistream_client.spark.source import TiStreamSource  # noqa: PLC0415

    spark.dataSource.register(TiStreamSource)
