"""How fast the Python client reads answers to a pull, on one core."""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from bench.cases.pull_decode import ONE_THREAD
from bench.contenders.client import Batches, EventsRead, Plain, Serve, ToPolars
from bench.measure import Bench

WHAT = (
    "answers to a PullTable of ten mixed columns (integers, DECIMAL, DOUBLE, DATETIME, TIMESTAMP, ENUM, VARCHAR, "
    "JSON), recorded and sent by a server on another core, read by the Python client as record batches, as a "
    "DataFrame of Polars and as typed events; beside http.client with pyarrow and Polars, or with the json module"
)
ROWS, EVENTS = 1_000_000, 60_000


def run(bench: Bench) -> None:
    """See WHAT."""
    with ExitStack() as stack:
        port = stack.enter_context(bench.remote(Serve, ROWS, 0.0))()
        contenders = {
            "client: batches()": stack.enter_context(bench.remote(Batches, port, **ONE_THREAD)),
            "client: to_polars()": stack.enter_context(bench.remote(ToPolars, port, **ONE_THREAD)),
            "http.client, pyarrow and Polars": stack.enter_context(bench.remote(Plain, port, "arrow", **ONE_THREAD)),
        }
        bench.agree({name: called() for name, called in contenders.items()})
        bench.compare("Arrow", contenders, amount=ROWS, unit="rows", warm=False)
    with ExitStack() as stack:
        port = stack.enter_context(bench.remote(Serve, EVENTS, 0.0))()
        contenders = {
            "client: events": stack.enter_context(bench.remote(EventsRead, port, **ONE_THREAD)),
            "http.client and json": stack.enter_context(bench.remote(Plain, port, "ndjson", **ONE_THREAD)),
        }
        bench.agree({name: called() for name, called in contenders.items()})
        bench.compare("NDJSON", contenders, amount=EVENTS, unit="events", warm=False)
    _rate(bench, "client: batches()", "rows/s", 2e6)
    _rate(bench, "client: events", "events/s", None)
    wall_s = statistics.median(one.wall_s for one in bench.samples if one.contender == "client: to_polars()")
    bench.figure("to_polars() of a million rows", wall_s, "s", 1.5)


def _rate(bench: Bench, contender: str, unit: str, aim: float | None) -> None:
    own = [one for one in bench.samples if one.contender == contender]
    rate = own[0].amount / statistics.median(one.cpu_s for one in own)
    bench.figure(f"{contender}, per core", rate, unit, aim, "more")
