"""How fast rows become answers, on one core."""

from __future__ import annotations

from contextlib import ExitStack

from bench.contenders.pull_decode import Columns, Decode, PullAnswer
from bench.measure import Bench

WHAT = (
    "real rows of ten mixed columns (integers, DECIMAL, DOUBLE, DATETIME, TIMESTAMP, ENUM, VARCHAR, JSON; a quarter "
    "with NULLs, a fifth from before an ALTER TABLE) made into Arrow columns and NDJSON, and whole "
    "answers to a PullTable; one thread"
)
ROWS = 262_144
ONE_THREAD = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
ANSWERS = {"ndjson": 1e6, "arrow": 2e6, "parquet": 2e6}


def run(bench: Bench) -> None:
    """See WHAT."""
    _decode(bench)
    for updates, what in ((0.0, "inserts"), (0.5, "every other event an update with its old row")):
        _answers(bench, updates, what)


def _decode(bench: Bench) -> None:
    with ExitStack() as stack:
        contenders = {
            "tistream: bytes to Arrow": stack.enter_context(bench.remote(Decode, ROWS, False, **ONE_THREAD)),
            "tistream: bytes to NDJSON": stack.enter_context(bench.remote(Decode, ROWS, True, **ONE_THREAD)),
            **{
                f"{engine}: decoded columns to NDJSON": stack.enter_context(
                    bench.remote(Columns, ROWS, engine, **ONE_THREAD)
                )
                for engine in ("polars", "duckdb", "orjson")
            },
        }
        bench.agree({name: called() for name, called in contenders.items()})
        bench.compare("rows", contenders, amount=ROWS, unit="rows", warm=False)
    _figure(bench, "rows", "tistream: bytes to Arrow", "Arrow columns, per core", 2e6)
    _figure(bench, "rows", "tistream: bytes to NDJSON", "NDJSON, per core", 1e6)


def _answers(bench: Bench, updates: float, what: str) -> None:
    group = f"answers: {what}"
    with ExitStack() as stack:
        contenders = {
            f"{form}, {'row groups held' if held else 'from segments'}": stack.enter_context(
                bench.remote(PullAnswer, ROWS, updates, form, held, **ONE_THREAD)
            )
            for form in ANSWERS
            for held in (True, False)
        }
        bench.compare(group, contenders, amount=ROWS, unit="events")
    for form, aim in ANSWERS.items():
        _figure(bench, group, f"{form}, row groups held", f"{form} answer, per core, {what}", aim)


def _figure(bench: Bench, group: str, contender: str, name: str, aim: float) -> None:
    """Rows for each second of processor time, in the median round: others' work on this machine counts less so."""
    spent = sorted(s.cpu_s for s in bench.samples if (s.group, s.contender) == (group, contender))
    bench.figure(name, ROWS / spent[len(spent) // 2], "rows/s", aim, "more")
