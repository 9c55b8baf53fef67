"""What is pushed into a simulated platform, and what is true of it."""

from __future__ import annotations

import random
from typing import Any, Protocol

import orjson
import polars as pl

from support.golden import Delivery
from support.upstream import Upstream
from tistream.model.ids import TenantKey
from tistream.storage import layout


class Load(Protocol):
    """An upstream on the virtual clock."""

    tenant: TenantKey
    snapshot_ts: int
    schema_snap: bytes

    def advance(self, now_ms: int) -> list[Delivery]:
        """Everything that its stores push up to now."""

    def finish(self, now_ms: int) -> tuple[list[Delivery], int]:
        """End every transaction and push all: what is pushed, and the ts through which everything is known then."""

    def rows(self) -> pl.DataFrame:
        """What the pool must hold."""


class RawLoad:
    """support.upstream: raw keys of no table."""

    def __init__(self, seed: int) -> None:
        self._upstream = Upstream(seed)
        self._rng = random.Random(seed + 1)
        self._next_ms: float | None = None
        self._taken = 0
        self.tenant, self.snapshot_ts = self._upstream.tenant, self._upstream.snapshot_ts
        snap: dict[str, Any] = {"version": 1, "snapshot_ts": self.snapshot_ts, "databases": []}
        self.schema_snap = orjson.dumps(snap)

    def _files(self) -> list[Delivery]:
        files = self._upstream.files[self._taken :]
        self._taken += len(files)
        return files

    def advance(self, now_ms: int) -> list[Delivery]:
        self._next_ms = now_ms if self._next_ms is None else self._next_ms
        while self._next_ms <= now_ms:
            self._upstream.step()
            self._next_ms += self._rng.expovariate(1 / 60)
        return self._files()

    def finish(self, now_ms: int) -> tuple[list[Delivery], int]:
        end_ts = self._upstream.finish()
        return self._files(), end_ts

    def rows(self) -> pl.DataFrame:
        return self._upstream.truth()


def snap_of(load: Load) -> Delivery:
    """Its schema_snap as an object."""
    return Delivery(0.0, layout.schema_snap(load.tenant), load.schema_snap)
