"""The golden sets: what arrives, in which order, what must come out; and every way of delivering them."""

from __future__ import annotations

import functools
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import polars as pl

from support import change_files, oracle
from support.waiting import PATIENCE_S
from tistream.model.ids import TenantKey
from tistream.storage import layout

ROOT = Path(__file__).parents[1] / "data" / "golden"
NAMES = ("everything", "large")


@dataclass(frozen=True, slots=True)
class Delivery:
    """One object that arrives `at_ms` milliseconds after the start of the push."""

    at_ms: float
    key: str
    data: bytes

    @property
    def store_and_ts(self) -> tuple[int, int]:
        """The store and the ts of a change file."""
        parsed = layout.parse_change_file(self.key)
        assert parsed is not None, self.key
        return parsed[1], parsed[2]


@dataclass(frozen=True, slots=True)
class GoldenSet:
    """A golden set as one tenant's deliveries; `files` in arrival order."""

    name: str
    tenant: TenantKey
    snapshot_ts: int
    end_ts: int
    schema_snap: Delivery
    files: tuple[Delivery, ...]

    @property
    def deliveries(self) -> list[Delivery]:
        """The snapshot, then the files in arrival order."""
        return [self.schema_snap, *self.files]

    def chain(self, store_id: int) -> list[Delivery]:
        """One store's files in ts order."""
        own = [file for file in self.files if file.store_and_ts[0] == store_id]
        return sorted(own, key=lambda file: file.store_and_ts[1])

    @property
    def stores(self) -> list[int]:
        """The ids of the stores."""
        return sorted({file.store_and_ts[0] for file in self.files})

    def expected(self, what: str) -> Any:
        """`rows` and `ddl` (lists of dictionaries), `columns` (by index)."""
        return expected(self.name, what)


@functools.cache
def load(name: str) -> GoldenSet:
    """A golden set under its own cluster and tenant."""
    root = ROOT / name
    layout_json = json.loads((root / "layout.json").read_text())
    arrival = [json.loads(line) for line in (root / "arrival.jsonl").read_bytes().splitlines()]
    files = tuple(Delivery(a["at_ms"], a["key"], (root / "objects" / a["key"]).read_bytes()) for a in arrival)
    parsed = layout.parse_change_file(files[0].key)
    assert parsed is not None
    snap = layout.schema_snap(parsed[0])
    return GoldenSet(
        name=name,
        tenant=parsed[0],
        snapshot_ts=int(layout_json["base_ts"]),
        end_ts=int(layout_json["end_ts"]),
        schema_snap=Delivery(0.0, snap, (root / "objects" / snap).read_bytes()),
        files=files,
    )


@functools.cache
def expected(name: str, what: str) -> Any:
    """The parsed file of `expected/`."""
    if what == "columns":
        return json.loads((ROOT / name / "expected" / "columns.json").read_text())
    lines = (ROOT / name / "expected" / f"{what}.jsonl").read_bytes().splitlines()
    return [json.loads(line) for line in lines]


@functools.cache
def committed_rows(name: str) -> pl.DataFrame:
    """What its pool must hold (tests/support/oracle.py), worked out once a process; columns as oracle.COLUMNS."""
    loaded = load(name)
    return oracle.committed_rows([file.data for file in loaded.files], loaded.snapshot_ts)


@functools.cache
def load_as(name: str, cluster_id: str, tenant_id: str) -> GoldenSet:
    """The same changes under another cluster and tenant."""
    base = load(name)
    tenant = TenantKey(cluster_id, tenant_id)
    files = tuple(
        Delivery(
            file.at_ms,
            layout.change_file(tenant, *file.store_and_ts),
            change_files.restated(file.data, cluster_id=cluster_id, tenant_id=tenant_id),
        )
        for file in base.files
    )
    snap = replace(base.schema_snap, key=layout.schema_snap(tenant))
    return replace(base, tenant=tenant, schema_snap=snap, files=files)


# --- orders of arrival ---------------------------------------------------------------------------------------------


def shuffled_across_stores(files: Sequence[Delivery], seed: int) -> list[Delivery]:
    """Another interleaving of the stores; within a store the order stays."""
    rng = random.Random(seed)
    queues: dict[int, list[Delivery]] = {}
    for file in files:
        queues.setdefault(file.store_and_ts[0], []).append(file)
    order: list[Delivery] = []
    while queues:
        store = rng.choice(sorted(queues))
        for _ in range(min(rng.randint(1, 20), len(queues[store]))):
            order.append(queues[store].pop(0))
        if not queues[store]:
            del queues[store]
    return retimed(order, files)


def shuffled(files: Sequence[Delivery], seed: int) -> list[Delivery]:
    """The files in any order: files of one store may arrive out of order too."""
    order = list(files)
    random.Random(seed).shuffle(order)
    return retimed(order, files)


def retimed(order: Sequence[Delivery], times_of: Sequence[Delivery]) -> list[Delivery]:
    """`order` arriving at the moments at which `times_of` arrived."""
    return [replace(file, at_ms=at.at_ms) for file, at in zip(order, times_of, strict=True)]


def duplicated(files: Sequence[Delivery], seed: int, share: float = 0.3) -> list[Delivery]:
    """Some files are put a second time, with the same bytes, later."""
    rng = random.Random(seed)
    again = [replace(f, at_ms=f.at_ms + rng.uniform(1, 2_000)) for f in files if rng.random() < share]
    return sorted([*files, *again], key=lambda file: file.at_ms)


def delayed(files: Sequence[Delivery], key: str, by_ms: float) -> list[Delivery]:
    """The set with one file that arrives late, after later files of its store."""
    moved = [replace(f, at_ms=f.at_ms + by_ms) if f.key == key else f for f in files]
    return sorted(moved, key=lambda file: file.at_ms)


def with_repeated_contents(files: Sequence[Delivery], seed: int, share: float = 0.2) -> list[Delivery]:
    """Some files are followed by one that says the same again (a writer that retried): new ts, chain intact."""
    rng = random.Random(seed)
    prev: dict[int, tuple[int, int]] = {}  # store -> (original ts, ts of the repeat)
    out: list[Delivery] = []
    for file in files:
        store, ts = file.store_and_ts
        data = file.data
        if prev.get(store, (0, 0))[1]:
            data = change_files.restated(data, prev_ts=str(prev[store][1]))
        out.append(replace(file, data=data))
        prev[store] = (ts, 0)
        if rng.random() < share:
            again = change_files.restated(data, prev_ts=str(ts))
            parsed = layout.parse_change_file(file.key)
            assert parsed is not None
            out.append(Delivery(file.at_ms, layout.change_file(parsed[0], store, ts + 1), again))
            prev[store] = (ts, ts + 1)
    return out


# --- pushing -------------------------------------------------------------------------------------------------------


def put(objects: Path, delivery: Delivery) -> None:
    """Write the object as an agent does: complete or not at all."""
    path = objects / delivery.key
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{threading.get_ident()}")
    temporary.write_bytes(delivery.data)
    os.rename(temporary, path)


@functools.cache
def _http() -> httpx.Client:
    """One client for all announcements: a new one each time costs more than the request."""
    return httpx.Client(timeout=PATIENCE_S, verify=False, trust_env=False)


def announce(url: str, delivery: Delivery) -> None:
    """Announce a file to the platform. A lost announcement costs latency only, so a missing answer is no error."""
    parsed = layout.parse_change_file(delivery.key)
    if parsed is None:
        return
    tenant, store, ts = parsed
    body = {"cluster_id": tenant.cluster_id, "tenant_id": tenant.tenant_id, "store_id": str(store), "ts": str(ts)}
    try:
        answer = _http().post(f"{url}/v1/notifications", json=body)
    except httpx.TransportError:
        return
    assert answer.status_code in (202, 503), answer.text


def push(
    deliveries: Iterable[Delivery],
    objects: Path,
    *,
    url: str | None = None,
    pace: float = 0.0,
    before_each: Callable[[int], None] | None = None,
) -> None:
    """Write the objects in order, and announce them if there is a `url`.

    `pace` 0 is at once, 1 the speed of `at_ms`, 2 half of that speed. `before_each(n)` runs before the n-th object.
    """
    started = time.monotonic()
    for number, delivery in enumerate(deliveries):
        if pace:
            time.sleep(max(0.0, started + pace * delivery.at_ms / 1000 - time.monotonic()))
        if before_each is not None:
            before_each(number)
        put(objects, delivery)
        if url is not None:
            announce(url, delivery)
