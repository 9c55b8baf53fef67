"""The recorded changes of RawKV (tests/data/golden/changedata/raw), as an agent's files and as rows of the pool."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import polars as pl

from support import agent_replay
from support.agent_replay import Replay
from support.golden import Delivery
from tistream.model.ids import TenantKey
from tistream.model.raw_row import table_id

NAME = "raw"
TENANT = TenantKey("7", "raw")


@dataclass(frozen=True)
class RawSet:
    """`files`: what the agent pushes for the recorded streams, in order."""

    tenant: TenantKey
    snapshot_ts: int
    end_ts: int
    files: tuple[Delivery, ...]


@functools.cache
def load() -> RawSet:
    """The set as the agent pushes it."""
    recorded = agent_replay.recorded(NAME)
    replay = Replay(recorded, 64)
    replay.run()
    files = tuple(Delivery(0, key, data) for key, data in replay.files)
    return RawSet(TENANT, recorded.base_ts, recorded.end_ts, files)


@functools.cache
def truth() -> pl.DataFrame:
    """Every change: table_id, key, commit_ts, op, value (null for a delete), expire_ts (0: never)."""
    found = agent_replay.changes(NAME)
    keyspaces = [int.from_bytes(key[1:4], "big") for key in found["key"]]
    return found.select(
        pl.Series("table_id", [table_id(one) for one in keyspaces], pl.Int64),
        "key",
        "commit_ts",
        pl.col("op_type").cast(pl.Int8).alias("op"),
        pl.when(pl.col("op_type") == 1).then(pl.col("value").fill_null(b"")).alias("value"),
        "expire_ts",
    ).sort("commit_ts", "key")
