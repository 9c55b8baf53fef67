"""Loads a recorded change set: the objects that stores pushed, with their arrival times
(tests/data/golden/README.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream_client.cli.errors import CliError


@dataclass(frozen=True, slots=True)
class Arrival:
    """One recorded change file of a store. It is pushed `at_ms` ms after the first one, under `key`. `ts` is the file's
    ts, and `path` its local copy. `commit_ts_max` is None if no entry has a commit_ts."""

    at_ms: float
    key: str
    store_id: int
    ts: int
    path: Path
    commit_ts_max: int | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded change set, with its files in the order in which they were pushed. The files cover every key up to
    `end_ts`. `rows_removed`, `rows_added`: how many rows TiDB's own SELECTs lost and gained over the whole set."""

    tenant: TenantKey
    snapshot_ts: int
    end_ts: int
    schema_snap: bytes
    arrivals: tuple[Arrival, ...]
    rows_removed: int
    rows_added: int


def load_recorded(root: Path) -> Recorded:
    """Read a recorded change set. Raises CliError if the directory is not one."""
    try:
        arrivals = tuple(_arrival(root, line) for line in _lines(root / "arrival.jsonl"))
        simulated = json.loads((root / "layout.json").read_text())
        expected = _lines(root / "expected" / "rows.jsonl")
        first = layout.parse_change_file(arrivals[0].key)
        assert first is not None
        snap = (root / "objects" / layout.schema_snap(first[0])).read_bytes()
    except (OSError, ValueError, LookupError, AssertionError) as error:
        raise CliError(f"{root} is not a recorded change set, such as tests/data/golden/everything: {error}") from error
    return Recorded(
        tenant=first[0],
        snapshot_ts=simulated["base_ts"],
        end_ts=simulated["end_ts"],
        schema_snap=snap,
        arrivals=arrivals,
        rows_removed=sum(len(table["removed"]) for line in expected for table in line["tables"]),
        rows_added=sum(len(table["added"]) for line in expected for table in line["tables"]),
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    """The objects in a file of JSON lines. They are cut as bytes: lines of text would end at U+2028 too, which values
    may have."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def _arrival(root: Path, line: dict[str, object]) -> Arrival:
    key = str(line["key"])
    parsed = layout.parse_change_file(key)
    assert parsed is not None, f"{key} is not the key of a change file"
    path = root / "objects" / key
    commit_ts_max = pc.max(pq.read_table(path, columns=["commit_ts"])["commit_ts"]).as_py()
    return Arrival(float(str(line["at_ms"])), key, parsed[1], parsed[2], path, commit_ts_max)
