"""How fast rows become answers, on one core."""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from bench.contenders.pull_decode import Columns, Decode, PullAnswer
from bench.measure import Bench
from tistream.service import allocators

WHAT = (
    "real rows of ten mixed columns (integers, DECIMAL, DOUBLE, DATETIME, TIMESTAMP, ENUM, VARCHAR, JSON; a quarter "
    "with NULLs, a fifth from before an ALTER TABLE) made into Arrow columns and NDJSON, and whole "
    "answers to a PullTable; one thread"
)
ROWS = 240_000  # four times as many still fit into one page
USUAL = 4
ONE_THREAD = {
    **dict.fromkeys(("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "ARROW_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"),
    **allocators.ENVIRON,  # as the API server has them
}
ANSWERS = {"ndjson": 1e6, "arrow": 2e6, "parquet": 2e6}


def run(bench: Bench) -> None:
    """See WHAT."""
    for scale in bench.scales:
        rows = bench.sized(ROWS, scale)
        _decode(bench, rows, scale)
        for updates, what in ((0.0, "inserts"), (0.5, "every other event an update with its old row")):
            _answers(bench, rows, updates, what, scale)


def _decode(bench: Bench, rows: int, scale: int) -> None:
    with ExitStack() as stack:
        contenders = {
            "tistream: bytes to Arrow": stack.enter_context(bench.remote(Decode, rows, False, **ONE_THREAD)),
            "tistream: bytes to NDJSON": stack.enter_context(bench.remote(Decode, rows, True, **ONE_THREAD)),
            **{
                f"{engine}: decoded columns to NDJSON": stack.enter_context(
                    bench.remote(Columns, rows, engine, **ONE_THREAD)
                )
                for engine in ("polars", "duckdb", "orjson")
            },
        }
        bench.agree({name: called() for name, called in contenders.items()})
        bench.compare("rows", contenders, amount=rows, unit="rows", scale=scale, warm=False)
    _figure(bench, "rows", "tistream: bytes to Arrow", "Arrow columns, per core", 2e6, scale)
    _figure(bench, "rows", "tistream: bytes to NDJSON", "NDJSON, per core", 1e6, scale)


def _answers(bench: Bench, rows: int, updates: float, what: str, scale: int) -> None:
    group = f"answers: {what}"
    with ExitStack() as stack:
        contenders = {
            f"{form}, {'row groups held' if held else 'from segments'}": stack.enter_context(
                bench.remote(PullAnswer, rows, updates, form, held, **ONE_THREAD)
            )
            for form in ANSWERS
            for held in (True, False)
        }
        bench.compare(group, contenders, amount=rows, unit="events", scale=scale)
    for form, aim in ANSWERS.items():
        _figure(bench, group, f"{form}, row groups held", f"{form} answer, per core, {what}", aim, scale)


def _figure(bench: Bench, group: str, contender: str, name: str, aim: float, scale: int) -> None:
    """Rows for each second of processor time, in the median round: others' work on this machine counts less so."""
    own = [s for s in bench.samples if (s.group, s.contender, s.scale) == (group, contender, scale)]
    rate = own[0].amount / statistics.median(sample.cpu_s for sample in own)
    bench.figure(name, rate, "rows/s", aim, "more", scale=scale)
