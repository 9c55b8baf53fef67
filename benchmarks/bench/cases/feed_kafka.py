"""How fast changefeeds write into a broker on the same machine, and what a second feed of the same tables adds."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from bench import proc_tree
from bench.contenders.feed_kafka import Feeds
from bench.inputs.size import size
from bench.measure import Bench
from bench.remote import Remote
from bench.up import free_port
from tistream.service import allocators
from tistream_cli.platform.local_kafka import LocalKafka, local_kafka

WHAT = (
    "holders of changefeeds as a worker runs them, on a pool in memory with rows of ten mixed columns, every other one "
    "an update with its old row, into three partitions of a Kafka 4, in transactions; rows for each second of two "
    "cores are those of both processors' time that the worker and the broker take together"
)
ROWS, FEW_ROWS, EVERY_ROWS = size(500_000), size(100_000), 1_000
TABLES, MANY_TABLES = 4, 10_000
CORES = 2
AIM, SECOND_AIM, TABLES_AIM = 300_000.0, 0.6, 1.5
OPEN = "protocol=open-protocol&partition-num=3"
CANAL = "protocol=canal-json&enable-tidb-extension=true&partition-num=3"


@dataclass(frozen=True, slots=True)
class Spent:
    """Processor seconds for each row: of the worker, and of the broker."""

    worker: float
    broker: float

    @property
    def rate(self) -> float:
        """Rows for each second of all cores."""
        return CORES / (self.worker + self.broker)


def run(bench: Bench) -> None:
    """See WHAT."""
    with local_kafka(bench.tmp / "kafka", free_port(), free_port()) as kafka:
        for name, options in (("open-protocol", OPEN), ("canal-json", CANAL)):
            spent = _spent(bench, kafka, ROWS, TABLES, options)
            bench.figure(f"{name}: rows, on two cores", spent.rate, "rows/s", AIM, "more")
            bench.figure(f"{name}: rows, of the worker", 1 / spent.worker, "rows/s a core", better="more")
        many = _spent(bench, kafka, FEW_ROWS, MANY_TABLES, OPEN)
        few = _spent(bench, kafka, FEW_ROWS, TABLES, OPEN)
        share = many.worker / few.worker
        bench.figure(f"{MANY_TABLES:,} tables: the worker, beside {TABLES}", share, "times", TABLES_AIM)
        for what, every in (("a backlog", 0), (f"{EVERY_ROWS:,} rows each {Feeds.EVERY_S:g} s", EVERY_ROWS)):
            one = _spent(bench, kafka, FEW_ROWS, TABLES, OPEN, every_rows=every)
            two = _spent(bench, kafka, FEW_ROWS, TABLES, OPEN, 2, every)
            share = 2 * two.worker / one.worker - 1  # for each row: of two feeds, each row is sent twice
            bench.figure(f"a second feed of the same tables, {what}: the worker", share, "times", SECOND_AIM)


def _spent(
    bench: Bench, kafka: LocalKafka, rows: int, tables: int, options: str, feeds: int = 1, every_rows: int = 0
) -> Spent:
    """The median of rounds."""
    found = []
    with bench.remote(Feeds, kafka.address, rows, 0.5, tables, options, feeds, every_rows, **allocators.ENVIRON) as run:
        run()
        for _ in range(bench.rounds):
            found.append(_round(run, kafka))
    return Spent(statistics.median(one.worker for one in found), statistics.median(one.broker for one in found))


def _round(run: Remote, kafka: LocalKafka) -> Spent:
    worker, broker = proc_tree.cpu_seconds(run.pid), proc_tree.cpu_seconds(kafka.pid)
    rows = run()
    time.sleep(1)  # the broker ends what it does behind the last acknowledgement
    return Spent((proc_tree.cpu_seconds(run.pid) - worker) / rows, (proc_tree.cpu_seconds(kafka.pid) - broker) / rows)
