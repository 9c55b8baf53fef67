"""A program that reads a stream of changes with Spark into Parquet, and is killed by tests.

python -m support.spark_stream FOLDER OPTIONS: it reads up to what is there, and then writes the commit_ts and the key
of each row of the output, as the checkpointed sink shows them, to FOLDER/rows.json.
"""

import json
import sys
from pathlib import Path

from support import spark
from tistream_client.spark import register


def main(folder: Path, options: dict[str, str]) -> None:
    """Continue the stream from its checkpoint."""
    with spark.local_session(spark.CLIENT) as session:
        register(session)
        (
            session.readStream.format("tistream").options(**options).load().writeStream.format("parquet")
            .option("path", str(folder / "out")).option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True).start().awaitTermination()
        )  # fmt: skip
        rows = session.read.parquet(str(folder / "out")).select("commit_ts", "key.id", "op").collect()
        (folder / "rows.json").write_text(json.dumps(sorted(map(list, rows))))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
