"""DuckDB reads the Iceberg tables of a feed as pyiceberg does. Its extension exists for DuckDB 1.5 alone, so it is
installed into an environment of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from support.feed_lake import HastyClock, LakeRun, resolved, run_to_end
from support.not_run import not_run
from support.pull_world import golden_world

VERSION = "1.5.5"
PACKAGES = ("duckdb", "duckdb-extension-avro", "duckdb-extension-iceberg")
COLUMNS = ("id", "customer", "amount")
SCRIPT = """
import json, sys
from pathlib import Path
import duckdb
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for name in ("avro", "iceberg"):
    root = Path(duckdb.__file__).parents[1] / f"duckdb_extension_{name}"
    [file] = root.rglob(f"{name}.duckdb_extension")
    connection.sql(f"LOAD '{file}'")
metadata, columns, *snapshots = sys.argv[1:]
for snapshot in snapshots:
    rows = connection.sql(f"SELECT {columns} FROM iceberg_scan('{metadata}', snapshot_from_id={snapshot}::UBIGINT)")
    print(json.dumps(rows.fetchall()))
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python that has DuckDB with its extension."""
    found = tmp_path / "duckdb" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "duckdb")], check=True)
    install = [str(found), "-m", "pip", "install", "-q", *(f"{one}=={VERSION}" for one in PACKAGES)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        not_run(f"DuckDB {VERSION} cannot be installed: {done.stderr[-300:]}")
    return found


def test_duckdb_shows_each_snapshot(python: Path, tmp_path: Path) -> None:
    run = LakeRun(golden_world("everything"), tmp_path, "both", ["shop.orders"], "flush-interval=100ms")
    run.clock = HastyClock()
    run_to_end(run.holder())
    for name, shown in (("shop.orders", COLUMNS), ("shop.orders__changes", ("_commit_ts", "_op", *COLUMNS))):
        table = run.table(name)
        ids = [number for number, _ in resolved(table)]
        assert len(ids) > 2
        columns = ", ".join(f"CAST({one} AS VARCHAR)" for one in shown)
        arguments = [table.metadata_location.removeprefix("file://"), columns, *map(str, ids)]
        done = subprocess.run([python, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True)
        for number, line in zip(ids, done.stdout.splitlines(), strict=True):
            rows = table.scan(snapshot_id=number, selected_fields=shown).to_arrow().select(shown).to_pylist()
            wanted = Counter(tuple(None if one is None else str(one) for one in row.values()) for row in rows)
            assert Counter(map(tuple, json.loads(line))) == wanted, number
