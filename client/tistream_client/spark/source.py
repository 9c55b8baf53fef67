"""The Spark data source `tistream`, and its reader of batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tistream_client.core.errors import WrongArgument
from tistream_client.spark import options
from tistream_client.spark.plan import Planned, batch_parts, planned, read
from tistream_client.spark.stream import EventStream
from tistream_client.transport import utc_now

if TYPE_CHECKING:
    import pyarrow as pa


class TiStreamSource(DataSource):
    """The format `tistream`. Times such as "now" are pinned when a DataFrame is made: each action on it reads the same
    rows."""

    _plan: Planned | None = None

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "tistream"

    def schema(self) -> StructType:
        """The columns of the DataFrame, from the table's schema as of the end of what is read. Raises WrongArgument,
        ApiError, NoAnswer."""
        self._plan = planned(options.parsed(self.options, utc_now))
        return self._plan.shape.spark()

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch. Raises WrongArgument if an option is only for streams, if `schema` is not the table's,
        or if `endingTs` lies above the newest ts."""
        plan = self._planned(schema)
        options.check_batch(self.options)
        if plan.high > max(plan.newest, plan.low):
            raise WrongArgument(
                "endingTs", f"{plan.high} lies above {plan.newest}, the newest ts", '.option("endingTs", "now")'
            )
        return BatchReader(plan)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a stream. Raises WrongArgument if an option is only for batches, or if `schema` is not the
        table's."""
        plan = self._planned(schema)
        options.check_stream(self.options)
        return EventStream(plan)

    def _planned(self, schema: StructType) -> Planned:
        plan = self._plan or planned(options.parsed(self.options, utc_now))
        if schema.simpleString() != plan.shape.spark().simpleString():
            raise WrongArgument(
                "schema",
                f"is {schema.simpleString()}, and the table gives {plan.shape.spark().simpleString()}",
                'leave .schema(…) out, and choose columns by .option("columns", "id,total")',
            )
        return plan


class BatchReader(DataSourceReader):
    """Reads the rows and changes that were pinned when the DataFrame was made.

    Spark's filters are not accepted: as of Spark 4.3, the filters that one query gives to a Python data source are kept
    for every later query of the same DataFrame, which then lacks rows. Options restrict what is read instead.
    """

    def __init__(self, plan: Planned) -> None:
        self._plan = plan

    def partitions(self) -> list[InputPartition]:
        """The parts of the DataFrame."""
        return batch_parts(self._plan)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part."""
        return read(self._plan, partition)
