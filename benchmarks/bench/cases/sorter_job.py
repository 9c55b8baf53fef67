"""The sorter's Spark job beside DuckDB, Polars and Spark SQL: 2 M transactions matched, sorted and written."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb

from bench.contenders.plain_engines import DuckDb, Polars, SparkSql
from bench.contenders.sorter_job import SorterJob
from bench.inputs.changes import Load, write
from bench.measure import Bench

WHAT = (
    "2 M transactions (4 M entries) of one 127-byte incompressible value each, in 20 change files of 2 stores and 8 "
    "regions: matched, sorted, written as Parquet with zstd; Spark local[2] with every rule on, the others join and "
    "order only"
)
TRANSACTIONS = 2_000_000
CORES = 2
USUAL = 4


def digest(paths: list[str]) -> tuple[int, int]:
    """Rows and a hash of what they say that does not depend on their order."""
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
    load = Load(transactions=bench.sized(TRANSACTIONS, scale), seconds=10)
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
        bench.remote(DuckDb, paths, target("duckdb"), CORES) as duck,
        bench.remote(Polars, paths, target("polars"), POLARS_MAX_THREADS=str(CORES)) as polars,
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
        for group, contenders, rounds in (
            ("match, sort, write", {"tistream": ours, "DuckDB": duck, "Polars": polars}, bench.rounds),
            ("Spark SQL", {"Spark SQL": spark}, 1),
        ):
            bench.compare(group, contenders, rounds, load.entries, "entries", scale, reset, warm=False)
        reset()
    shutil.rmtree(root)


def _size(bench: Bench, name: str, paths: list[Path], scale: int) -> None:
    written = sum(path.stat().st_size for path in paths)
    bench.figure(f"written by {name}", written / (1 << 20), "MiB", scale=scale)
