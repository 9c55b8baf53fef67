"""A load in real time: files of the second that has just ended, and a consumer that notes when it may see what."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import httpx
import numpy as np
import numpy.typing as npt
import orjson

from bench.inputs.changes import Load, seconds
from bench.up import Up, put
from tistream.clock import SystemClock
from tistream.storage import layout

Floats = npt.NDArray[np.float64]

_CLOCK = SystemClock()
KEPT_S = 120  # pushed files are removed after so long: long since taken, and the disk is small
MOMENTS = 20  # of each answer, at which a row may have been committed


def now_s() -> float:
    """Wall time in seconds, as a load's first_ms is."""
    return _CLOCK.now_ms() / 1000


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a Pusher has done: rows and bytes, how late its latest file was and what it cost, both in seconds."""

    rows: int
    bytes: int
    late_s: float
    cpu_s: float
    end_ts: int


class Pusher:
    """In a process of its own. Called with a load that begins in the future, it pushes each second's files when the
    second has ended, announces them, and gives what it pushed."""

    def __init__(self, objects: str, url: str) -> None:
        self._objects, self._http, self._url = Path(objects), httpx.Client(trust_env=False), url

    def __call__(self, load: Load) -> Pushed:
        cpu = time.process_time()
        total, late, end_ts = 0, 0.0, 0
        paths: list[tuple[float, Path]] = []
        for number, second in enumerate(seconds(load)):
            due = load.first_ms / 1000 + number + 1
            time.sleep(max(0.0, due - now_s()))
            for key, body in second.files:
                put(self._objects, key, body)
                total += len(body)
                paths.append((due, self._objects / key))
                self._announce(load, key)
            late = max(late, now_s() - due)
            end_ts = second.resolved_ts
            while paths and paths[0][0] < due - KEPT_S:
                paths.pop(0)[1].unlink()
        return Pushed(load.transactions, total, late, time.process_time() - cpu, end_ts)

    def _announce(self, load: Load, key: str) -> None:
        named = layout.parse_change_file(key)
        assert named is not None
        body = {
            "cluster_id": load.tenant.cluster_id,
            "tenant_id": load.tenant.tenant_id,
            "store_id": str(named[1]),
            "ts": str(named[2]),
        }
        self._http.post(f"{self._url}/v1/notifications", json=body).raise_for_status()


class Follower:
    """A client that pulls on and on by long polls of `wait_ms`, in a thread of this process. A poll of a scope without
    changes answers when its time is over, so there it should be short."""

    def __init__(self, up: Up, path: str, start_ts: int, wait_ms: int) -> None:
        self._url, self._start_ts, self._wait_ms = f"{up.url}{path}", start_ts, str(wait_ms)
        self._stop = Event()
        self._heard: list[tuple[float, int, int]] = []  # when, the answer's resolved_ts, its rows
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        fixed = {"limit": "1000000", "wait_ms": self._wait_ms}
        place = {"start_ts": str(self._start_ts)}
        with httpx.Client(timeout=120, trust_env=False, headers={"accept-encoding": "identity"}) as client:
            while not self._stop.is_set():
                answer = client.get(self._url, params=place | fixed)
                if answer.status_code != httpx.codes.OK:
                    time.sleep(0.1)
                    continue
                body = answer.content.rstrip(b"\n")
                end = orjson.loads(body[body.rfind(b"\n") + 1 :])
                if end["type"] == "resolved":
                    self._heard.append((now_s(), int(end["resolved_ts"]), body.count(b"\n")))
                else:
                    self._heard.append((now_s(), 0, body.count(b"\n")))
                place = {"cursor": end["cursor"]}

    @property
    def rows(self) -> int:
        """All lines of changes so far."""
        return sum(rows for _, _, rows in self._heard)

    @property
    def resolved_ts(self) -> int:
        """Where it stands."""
        return max((ts for _, ts, _ in self._heard), default=0)

    def wait(self, ts: int, seconds: float) -> bool:
        """Whether it came to `ts` in time."""
        until = time.perf_counter() + seconds
        while self.resolved_ts < ts and time.perf_counter() < until:
            time.sleep(0.05)
        return self.resolved_ts >= ts

    def lags(self, since_ts: int, until_ts: int) -> Floats:
        """Seconds from each moment of (since_ts, until_ts] until an answer's resolved_ts was at or above it: what is
        committed at that moment has been seen by then. What has not been seen counts as seen now."""
        found: list[Floats] = []
        low = since_ts
        for at, ts, _ in [*self._heard, (now_s(), until_ts, 0)]:
            high = min(ts, until_ts)
            if high > low:
                moments = np.linspace(low >> 18, high >> 18, MOMENTS + 1)[1:] / 1000
                weight = max(1, round((high - low) / (1 << 18) / 100))  # as many as the time that it covers has 100 ms
                found.append(np.repeat(at - moments, weight))
                low = high
        return np.concatenate(found) if found else np.zeros(0)

    def stop(self) -> None:
        """End it."""
        self._stop.set()
        self._thread.join(130)
