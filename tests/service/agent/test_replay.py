"""Changes of RawKV into a TiKV over real gRPC, whose regions move, split and are busy meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from support.emulated import EmulatedTikv
from support.raw_target import CLUSTER_ID, RawTarget
from tistream.clock import SystemClock
from tistream.concurrency import new_executor
from tistream.errors import Gone, InvalidRequest, Unavailable
from tistream_agent.replay.batches import Batch, RawWrite, batches
from tistream_agent.replay.raw_writer import RawWriter, Stopping, WriteRefused
from tistream_agent.replay.replayer import Replayer
from tistream_agent.replay.state_file import State, StateFile
from tistream_agent.upstream.pd import PdClient
from tistream_agent.upstream.stores import Channels, TlsFiles

NOW_S = SystemClock().now_ms() // 1_000


@pytest.fixture
def target() -> Iterator[RawTarget]:
    with RawTarget(busy_rate=0.2, moving_s=10) as served:
        yield served


class Writing:
    """A writer into a cluster, and the attempts that it repeated."""

    def __init__(self, address: str) -> None:
        self.again: list[str] = []
        self.stopped = threading.Event()
        channels = Channels(TlsFiles())
        self.pd = PdClient([address], channels)
        self.writer = RawWriter(self.pd, channels, self._pause, self.again.append)

    def _pause(self, seconds: float) -> bool:
        """A back-off is a hundred times shorter than a cluster's, for the emulator is no busier for it."""
        return self.stopped.wait(seconds / 100)


def test_every_batch_is_taken_once_regions_settle(target: RawTarget) -> None:
    writing = Writing(target.address)
    rng = random.Random(3)
    truth: dict[bytes, bytes] = {}
    writes: list[RawWrite] = []
    for number in range(1_500):
        key = b"r\0\0" + rng.choice([b"\0", b"\x05"]) + b"%03d" % rng.randrange(400)
        value = None if rng.random() < 0.3 else b"%d" % number
        expire_ts = rng.choice([0, 0, NOW_S - 5, NOW_S + 100_000])
        writes.append(RawWrite(key, value, expire_ts))
        truth.pop(key, None)
        if value is not None and expire_ts != NOW_S - 5:
            truth[key] = value
    for batch in batches(writes, NOW_S):
        writing.writer.write(batch)
    writing.writer.close()
    assert target.live(NOW_S) == truth
    # What is left to live is what was left when it was written, but for the seconds between the two clocks.
    expiries = {row.expire_ts for _, row in target.upstream.mvcc.read(b"r", b"s", 1 << 62) if row.expire_ts}
    assert expiries
    assert all(abs(one - (NOW_S + 100_000)) < 3_600 for one in expiries)
    errors = target.upstream.counters.errors
    assert errors["server_is_busy"] > 0
    assert errors["raw_region_error"] > 0
    assert writing.again


# Attack: the target has API V1, which stores no timestamps
def test_a_target_of_api_v1_is_refused_by_name() -> None:
    tikv = EmulatedTikv().start()
    try:
        writing = Writing(tikv.address)
        with pytest.raises(WriteRefused, match=r"storage\.api-version = 2"):
            writing.writer.write(Batch((b"r\0\0\0k",), (b"v",), (0,)))
    finally:
        tikv.stop()


def test_a_writer_that_is_to_stop_does_not_wait_for_a_cluster_that_is_away() -> None:
    with RawTarget() as gone:
        writing = Writing(gone.address)
        assert writing.pd.cluster_id == CLUSTER_ID
    threading.Timer(0.3, writing.stopped.set).start()
    with pytest.raises(Stopping):
        writing.writer.write(Batch((b"r\0\0\0k",)))


def line(key: bytes, value: bytes | None, ts: int) -> bytes:
    from base64 import b64encode

    shown = None if value is None else b64encode(value).decode()
    event = {"type": "raw", "op": "delete" if value is None else "put", "commit_ts": str(ts), "keyspace": "0"}
    return orjson.dumps({**event, "key": b64encode(key).decode(), "value": shown, "expire_at": None})


def test_a_replay_continues_at_its_position_after_errors(target: RawTarget, tmp_path: Path) -> None:
    answers: list[Any] = [
        Gone("too old", {"earliest_ts": "5"}),
        [line(b"a", b"1", 6), line(b"b", b"1", 7), b'{"type":"resolved","resolved_ts":"9","cursor":"c9"}'],
        Unavailable("the server restarts"),
        [line(b"a", None, 10)],  # cut off
        [line(b"a", None, 10), line(b"a", b"2", 11), b'{"type":"continue","cursor":"c11"}'],
        [b'{"type":"resolved","resolved_ts":"20","cursor":"c20"}'],
    ]
    asked: list[dict[str, str]] = []

    def pages(params: dict[str, str]) -> Iterator[bytes]:
        asked.append(params)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        yield from answer

    writing = Writing(target.address)
    saved: list[State] = []
    there: list[dict[bytes, bytes]] = []  # in the target when a position was stored
    with StateFile(tmp_path / "state") as file:

        def save(state: State) -> None:
            file.write(state)
            saved.append(state)
            there.append(target.live(NOW_S))

        replayer = Replayer(
            *("7/raw", CLUSTER_ID, pages, writing.writer, None, save, new_executor("replay", 4), 4, SystemClock()),
            wait=lambda _: False,
            say=lambda _: None,
        )
        replayer.run(until_ts=20)
        assert file.read("7/raw", CLUSTER_ID) == saved[-1]
        with pytest.raises(InvalidRequest, match="name another file"):
            file.read("7/raw", 5)
        with pytest.raises(InvalidRequest, match="held by another replay"), StateFile(tmp_path / "state"):
            pass
    assert [one.cursor for one in saved] == ["c9", "c11", "c20"]
    begins = [one.get("cursor") or one.get("start_ts") for one in asked]
    assert begins == ["0", "5", "c9", "c9", "c9", "c11"]
    first, second = {b"r\0\0\0a": b"1", b"r\0\0\0b": b"1"}, {b"r\0\0\0a": b"2", b"r\0\0\0b": b"1"}
    assert there == [first, second, second]
