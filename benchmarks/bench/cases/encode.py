"""How fast row events become Kafka messages, on one core."""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from bench.cases.pull_decode import ONE_THREAD
from bench.contenders.encode import Encode, PlainAvro, PlainEncode
from bench.measure import Bench

WHAT = (
    "real rows of ten mixed columns (integers, DECIMAL, DOUBLE, DATETIME, TIMESTAMP, ENUM, VARCHAR, JSON; every other "
    "one an update with its old row) made into messages of open-protocol (in frames of 16), canal-json (with "
    "extension), debezium (without schemas), avro, csv and simple; from decoded columns and from stored rows; one "
    "thread. The references make open-protocol's objects with orjson and avro's values with fastavro, row by row"
)
ROWS = 240_000
AIMS = {"open": 1e6, "canal": 1e6, "debezium": 0.6e6, "avro": 0.6e6, "csv": 0.8e6, "simple": None}  # rows/s
SHAPES = {"inserts": 0.0, "every other event an update": 0.5}


def run(bench: Bench) -> None:
    """See WHAT."""
    for scale in bench.scales:
        rows = bench.sized(ROWS, scale)
        for shape, updates in SHAPES.items():
            with ExitStack() as stack:
                contenders = {
                    **{
                        f"tistream: {protocol}, from {'stored rows' if raw else 'columns'}": stack.enter_context(
                            bench.remote(Encode, rows, updates, protocol, raw, **ONE_THREAD)
                        )
                        for protocol in AIMS
                        for raw in (False, True)
                    },
                    "orjson: open, from columns": stack.enter_context(
                        bench.remote(PlainEncode, rows, updates, **ONE_THREAD)
                    ),
                    "fastavro: avro, from columns": stack.enter_context(
                        bench.remote(PlainAvro, rows, updates, **ONE_THREAD)
                    ),
                }
                bench.compare(shape, contenders, amount=rows, unit="rows", scale=scale)
            for contender in contenders:
                own = [s for s in bench.samples if (s.group, s.contender, s.scale) == (shape, contender, scale)]
                rate = own[0].amount / statistics.median(sample.cpu_s for sample in own)
                protocol = contender.removeprefix("tistream: ").partition(",")[0]
                aim = AIMS.get(protocol)
                bench.figure(f"{contender}, per core, {shape}", rate, "rows/s", aim, "more", scale=scale)
