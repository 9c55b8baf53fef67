"""The sorter's Spark job beside DuckDB, Polars and Spark SQL: 2 M transactions matched, sorted and written."""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path

import duckdb
import polars as pl

from bench.contenders.plain_engines import DuckDb, Polars, SparkSql
from bench.contenders.sorter_job import SorterJob
from bench.inputs.changes import Load, write
from bench.measure import Bench
from tistream.service import allocators

WHAT = (
    "2 M transactions (4 M entries) of one 127-byte incompressible value each, in 20 change files of 2 stores and 8 "
    "regions, taken as one tick: matched, sorted, written as Parquet with zstd; Spark local[2] with every rule on, in "
    "segments by key range, the others join and order only, into one file"
)
TRANSACTIONS, REGIONS = 2_000_000, 8
CORES = 2
USUAL = 4
GROUP = "match, sort, write"
AIM, AIM_TIMES = 3_300_000, 2


def digest(paths: list[str]) -> tuple[int, int]:
    """Rows and a hash of what they say that does not depend on their order, which each file must have."""
    for path in paths:
        named = list(pl.read_parquet_schema(path))
        order: list[str] = [name for name in ("table_id", "commit_ts", "start_ts", "key") if name in named]
        rows = pl.read_parquet(path, columns=order).select(order)
        assert rows.equals(rows.sort(order)), f"{path} is not sorted"
    with duckdb.connect(config={"threads": CORES}) as connection:
        found = connection.execute(
            "SELECT count(*), bit_xor(hash(key, start_ts, commit_ts, value)) FROM read_parquet(?)", [paths]
        ).fetchone()
    assert found is not None
    return found[0], found[1]


def run(bench: Bench) -> None:
    """See WHAT."""
    for scale in bench.scales:
        _compare(bench, scale)


def _compare(bench: Bench, scale: int) -> None:
    root = bench.tmp / f"objects-{scale}"
    # A region is split when it has grown: more work is more of them, and not larger ones.
    load = Load(transactions=bench.sized(TRANSACTIONS, scale), seconds=10, regions=bench.sized(REGIONS, scale))
    written = write(load, root)
    keys = [key for second in written.keys for key in second]
    paths = [str(root / key) for key in keys]
    print(f"input: {load.entries:,} entries in {len(keys)} files, {written.bytes / (1 << 20):,.0f} MiB")

    def target(name: str) -> str:
        return str(bench.tmp / f"out-{name}")

    def reset() -> None:
        shutil.rmtree(root / "committed", ignore_errors=True)
        for old in bench.tmp.glob("out-*"):
            shutil.rmtree(old)

    master = f"local[{CORES}]"
    with (
        bench.remote(SorterJob, str(root), keys, written.snapshot_ts, master) as ours,
        bench.remote(DuckDb, paths, target("duckdb"), CORES, **allocators.ENVIRON) as duck,
        bench.remote(Polars, paths, target("polars"), POLARS_MAX_THREADS=str(CORES), **allocators.ENVIRON) as polars,
        bench.remote(SparkSql, paths, target("spark"), master) as spark,
    ):
        segments, rows, _ = ours()
        said = {"tistream": digest([str(root / key) for key in segments])}
        assert rows == load.transactions
        _size(bench, "tistream", [root / key for key in segments], scale)
        for name, called in {"DuckDB": duck, "Polars": polars, "Spark SQL": spark}.items():
            paths_out = called()
            said[name] = digest(paths_out)
            _size(bench, name, list(map(Path, paths_out)), scale)
        bench.agree(said)
        contenders = {"tistream": ours, "DuckDB": duck, "Polars": polars}
        bench.compare(GROUP, contenders, bench.rounds, load.entries, "entries", scale, reset, warm=False)
        if len(bench.scales) == 1:  # seconds for each of ours
            bench.compare("Spark SQL", {"Spark SQL": spark}, 1, load.entries, "entries", scale, reset, warm=False)
        reset()
    _verdict(bench, load.entries, scale)
    shutil.rmtree(root)


def _verdict(bench: Bench, entries: int, scale: int) -> None:
    """By the medians; the best round beside it."""
    seconds: dict[str, list[float]] = {}
    for sample in bench.samples:
        if (sample.group, sample.scale) == (GROUP, scale):
            seconds.setdefault(sample.contender, []).append(sample.wall_s)
    ours, duck = (statistics.median(seconds[name]) for name in ("tistream", "DuckDB"))
    bench.figure("entries a second, the median round", entries / ours, "entries/s", AIM, "more", scale=scale)
    bench.figure("entries a second, the best round", entries / min(seconds["tistream"]), "entries/s", scale=scale)
    bench.figure("DuckDB's time for each second of ours", duck / ours, "times", AIM_TIMES, "more", scale=scale)


def _size(bench: Bench, name: str, paths: list[Path], scale: int) -> None:
    written = sum(path.stat().st_size for path in paths)
    bench.figure(f"written by {name}", written / (1 << 20), "MiB", scale=scale)
