"""`tistream simulate` without a platform: what is in the directory afterwards is what the truth file says."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from support import oracle
from support.platform import COMMAND
from support.simulated import WILD
from support.simulated_pull import events_of
from support.truth_sums import require_sums
from support.waiting import PATIENCE_S, eventually
from tistream.clock import SystemClock
from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import Body, ObjectInfo
from tistream_upstream.cluster import Cluster
from tistream_upstream.driver import Driver
from tistream_upstream.effects import Announce, Push
from tistream_upstream.outside import Uploader
from tistream_upstream.progress import RunProgress
from tistream_verify.fingerprint import TruthLine

TENANT = TenantKey("9", "sim")


def lines_of(path: Path) -> list[TruthLine]:
    return [TruthLine.parse(line) for line in path.read_bytes().splitlines()]


def told_events(path: Path) -> int:
    """Of the newest line that is whole; 0 before the first."""
    whole = path.read_bytes().rpartition(b"\n")[0].splitlines() if path.exists() else []
    return sum(table.events for table in TruthLine.parse(whole[-1]).tables.values()) if whole else 0


def pushed(objects: Path) -> list[bytes]:
    store = DirectoryObjectStore(objects)
    found = [info.key for info in store.list_after(layout.push_prefix(TENANT))]
    return [store.get(key) for key in found if layout.parse_change_file(key)]


def assert_told(objects: Path, truth: list[TruthLine]) -> None:
    """The files hold exactly the events that the last truth line sums up."""
    first, last = truth[0], truth[-1]
    snap = DirectoryObjectStore(objects).get(layout.schema_snap(TENANT))
    assert json.loads(snap)["snapshot_ts"] == first.ts
    rows = oracle.solve(pushed(objects), first.ts).rows
    assert sum(table.events for table in last.tables.values()) > 50
    require_sums([last], events_of(TENANT, snap, rows, last.ts))


def start(tmp_path: Path, *more: str) -> subprocess.Popen[str]:
    command = [COMMAND, "simulate", "--objects", tmp_path / "objects", "--cluster", "9", "--tenant", "sim"]
    options = ["--truth", tmp_path / "truth", "--rows-per-s", "150", "--txns-per-s", "60", "--push-ms", "200"]
    return subprocess.Popen(
        [*map(str, command), *map(str, options), *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, "--ddl-per-min", "60", "--churn-per-s", "3")
    try:
        eventually(lambda: told_events(tmp_path / "truth") > 100)
        process.send_signal(number)
        out, error = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert (process.returncode, error) == (0, "")
    assert "the last truth line has ts" in out
    assert_told(tmp_path / "objects", lines_of(tmp_path / "truth"))


def test_a_tenant_with_files_is_left_alone(tmp_path: Path) -> None:
    assert start(tmp_path, "--duration", "0.2").wait(PATIENCE_S) == 0
    before = sorted((tmp_path / "objects").rglob("*"))
    process = start(tmp_path, "--duration", "0.2")
    _, error = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "has files already" in error
    assert sorted((tmp_path / "objects").rglob("*")) == before


@dataclass
class Refusing:
    """A memory store whose disk is full for a while."""

    inner: MemoryObjectStore
    full: bool = False
    refused: int = 0

    def put(self, key: str, body: Body) -> None:
        if self.full:
            self.refused += 1
            raise Unavailable(f"cannot write {key}: no space left on device")
        self.inner.put(key, body)

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        return self.inner.list_after(prefix, after, delimiter)


def test_a_refused_file_is_put_again_before_any_later_one() -> None:
    store, said, announced = Refusing(MemoryObjectStore(), full=True), [], []
    uploader = Uploader(store, announced.append, said.append)  # type: ignore[arg-type]
    for ts in (1, 2, 3):
        uploader.add(Push(1, ts, ts - 1, f"file-{ts}", b"body", 0))
        uploader.add(Announce(1, ts))
    eventually(lambda: store.refused >= 2)
    assert list(store.list_after("")) == []
    assert announced == []
    assert uploader.waiting_bytes == 12
    assert len(said) == 1
    assert "no space left on device" in said[0]
    store.full = False
    eventually(lambda: uploader.idle)
    uploader.stop()
    assert [info.key for info in store.list_after("")] == ["file-1", "file-2", "file-3"]
    assert [one.ts for one in announced] == [1, 2, 3]
    assert len(said) == 2
    assert "takes files again" in said[1]


def test_a_full_disk_in_the_middle_of_a_run_loses_nothing(tmp_path: Path) -> None:
    clock, said, shown = SystemClock(), [], []
    calm = replace(WILD, begin_ms=clock.now_ms(), warm_ms=0, churn=replace(WILD.churn, lost_push=0.0), push_ms=100)
    cluster = Cluster(calm, 5)
    store = Refusing(MemoryObjectStore())
    put = list[int]()  # files, when the disk was full no more

    def stopping() -> bool:
        files = sum(1 for _ in store.list_after(""))
        seen = any("refuses" in text for text in said) and any("not put yet" in one.line() for one in shown)
        store.full = files > 3 and not seen
        if seen and not put:
            put.append(files)
        return bool(put) and files > put[0] + 3

    with (tmp_path / "truth").open("wb") as truth:
        driver = Driver(cluster, store, None, truth, clock, said.append)  # type: ignore[arg-type]
        outcome = driver.run(stopping, shown.append, 200)
    assert outcome.unput == 0
    assert [text for text in said if "refuses" in text]
    assert any(one.waiting_bytes for one in shown)
    files = [store.inner.get(i.key) for i in store.list_after("") if layout.parse_change_file(i.key)]
    assert oracle.solve(files, cluster.snapshot_ts).rows.equals(cluster.truth.rows)
    assert lines_of(tmp_path / "truth")[-1].ts == outcome.end_ts


def test_what_cannot_be_kept_up_with_is_said_and_not_made_up_for() -> None:
    """A clock that jumps: transactions are left out, time is not."""

    class Jumping(SystemClock):
        jump_ms = 0

        def monotonic_ms(self) -> int:
            return super().monotonic_ms() + self.jump_ms

    clock, shown = Jumping(), []
    cluster = Cluster(replace(WILD, begin_ms=clock.now_ms(), warm_ms=0, churn=replace(WILD.churn, lost_push=0.0)), 5)
    began_ms, steps = clock.now_ms(), iter(range(10**9))

    def stopping() -> bool:
        """Once the cluster has come almost as far as the clock has jumped."""
        if next(steps) == 10:
            clock.jump_ms = 8_000
        return cluster.now_ms >= began_ms + 7_000 and any(progress.behind_ms for progress in shown)

    store = MemoryObjectStore()
    outcome = Driver(cluster, store, None, None, clock, lambda _: None).run(stopping, shown.append, 10)
    assert outcome.shed_ms > 3_000


def test_progress_names_what_is_wrong() -> None:
    totals = Cluster(WILD, 1).totals
    line = RunProgress(61.2, 9_876.5, totals, 1.25, 2_300, 3 << 20).line()
    assert "9,876 entries/s" in line or "9,877 entries/s" in line
    assert "lag 1.2 s" in line
    assert "2.3 s behind the clock" in line
    assert "3.0 MiB not put yet" in line
    assert "lag" not in RunProgress(1.0, 0.0, totals, None, 0, 0).line()
    assert "lag ?" in RunProgress(1.0, 0.0, totals, None, 0, 0, platform=True).line()
