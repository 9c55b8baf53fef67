"""100,000 tables in one tenant, 1 % of them active."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from bench import proc_tree
from bench.contenders.ticks import WARM_TICKS, TickNode
from bench.contenders.wide_tables import Schema
from bench.inputs.changes import Load, write
from bench.measure import Bench
from bench.remote import Remote

WHAT = (
    "100,000 tables in one tenant against 100: a tick of 20,000 entries in 1,000 tables (1 %) against 100, with nine "
    "regions for all, and with one for each table; the schema history that the registry and each API server hold, 100 "
    "tables a database: ListTables of one database, what a pull of one table looks up, memory (what a pull reads is in "
    "pull-one-of-many)"
)
MANY, FEW = 100_000, 100
ACTIVE = MANY // 100
AIM = 1.5
TICKS = 15
ASKED = 2_000


def run(bench: Bench) -> None:
    """See WHAT."""
    _ticks(bench, "tick of 20,000 entries in 3 files", {FEW: 9, ACTIVE: 9})
    _ticks(bench, "the same, a region for each of all tables", {FEW: FEW, ACTIVE: MANY})
    _schema(bench)


def _ticks(bench: Bench, name: str, regions: Mapping[int, int]) -> None:
    """`regions`: how many there are, by the number of tables that are written."""
    seconds = TICKS + WARM_TICKS
    written = {}
    for tables in (FEW, ACTIVE):
        load = Load(transactions=10_000 * seconds, seconds=seconds, stores=3, regions=regions[tables], tables=tables)
        root = bench.tmp / f"{tables}-{regions[tables]}"
        written[tables] = (str(root), write(load, root))
    (few_root, few), (many_root, many) = written[FEW], written[ACTIVE]
    with (
        bench.remote(TickNode, few_root, few.keys, few.snapshot_ts, "local[2]") as one,
        bench.remote(TickNode, many_root, many.keys, many.snapshot_ts, "local[2]") as other,
    ):
        contenders = {f"{FEW} tables": one, f"{ACTIVE:,} tables": other}
        bench.compare(name, contenders, rounds=TICKS, unit="ticks", warm=False)
    bench.figure(f"{name}: {ACTIVE:,} tables against {FEW}", _ratio(bench, name, list(contenders)), "times", AIM)


def _schema(bench: Bench) -> None:
    with bench.remote(Schema, FEW) as few, bench.remote(Schema, MANY) as many:
        for question in ("list_tables", "find_table"):
            contenders = {f"{FEW} tables": _asking(few, question), f"{MANY:,} tables": _asking(many, question)}
            bench.agree({name: ask() for name, ask in contenders.items()})
            bench.compare(question, contenders, amount=ASKED, unit="questions")
            ratio = _ratio(bench, question, list(contenders))
            bench.figure(f"{question}: {MANY:,} tables against {FEW}", ratio, "times", AIM)
        grown, base = many("grown", 1), proc_tree.memory_bytes(few.pid)
        bench.figure(f"schema history of {MANY:,} tables", grown / (1 << 20), "MiB")
        bench.figure("the same", grown / MANY, "bytes a table")
        ratio = proc_tree.memory_bytes(many.pid) / base
        bench.figure(f"memory of a process that holds it: {MANY:,} tables against {FEW}", ratio, "times", AIM)


def _asking(schema: Remote, question: str) -> Callable[[], Any]:
    return lambda: schema(question, ASKED)


def _ratio(bench: Bench, group: str, names: list[str]) -> float:
    medians = [
        statistics.median(
            sample.wall_s for sample in bench.samples if (sample.group, sample.contender) == (group, name)
        )
        for name in names
    ]
    return medians[1] / medians[0]
