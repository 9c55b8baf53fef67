"""The recorded change histories of tests/data/golden/changedata, and what a client has to receive of each."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from support.puller import Change

FOLDER = Path(__file__).resolve().parents[1] / "data/golden/changedata"
SETS = ("everything", "large", "raw")
SPANS = {"everything": [(b"m", b"n"), (b"t", b"u")], "large": [(b"m", b"n"), (b"t", b"u")], "raw": [(b"r", b"s")]}
SCHEMA = FOLDER.parent / "everything/objects/data_change_buffer/cluster-7/Tenant-acme/schema_snap"


def expected(name: str) -> dict[tuple[bytes, int], Change]:
    """Every committed change of a set that streams tell: (key, commit_ts) -> change."""
    table = pq.read_table(FOLDER / name / "changes.parquet").to_pylist()
    return {
        (one["key"], one["commit_ts"]): (
            one["start_ts"],
            one["op_type"],
            one["value"] or b"",
            one["old_value"] or b"",
            one["expire_ts"] or 0,
        )
        for one in table
    }
