"""Answers that nobody reads: many connections of one token ask for more than a connection holds, and then do nothing.

What the API server's process takes for them, what it keeps, and how soon it notices that they have gone."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from bench.inputs import changes, mixed_rows
from support.hostile.wire import request
from support.hostile.world import CLUSTER, World
from support.platform import mains
from support.pull import Consumer, Refused
from support.waiting import PATIENCE_S, eventually
from tistream.storage import layout
from tistream_api.admission.memory_budget import KEPT_BYTES

WHO = "flooded"
CONNECTIONS = 84
CHANGES = 1_600_000  # transactions of a row each
CHANGES_BYTES = 100 << 20  # of change files they are at least
SECONDS = 40  # of upstream's time that they take
LIMIT_BYTES = 4 << 30  # what an API server's container may have (deploy/k8s/base/api.yaml)
KEPT_MAX = KEPT_BYTES + (256 << 20)  # afterwards: what is not worth giving back, and a cache that others have filled
LOOK_S = 0.1
AGAIN_S = 2.0  # what Retry-After says where there is no memory
TOLD = {"200", "429"}  # what they are answered
STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")


def query_of(form: str, start_ts: int) -> str:
    """For every event from `start_ts` on, as many as an answer may hold. Arrow has no default of `events`."""
    return f"start_ts={start_ts}&limit=1000000&format={form}&events=all"


class Flooded:
    """The tenant that is asked: an hour ago it had so many changes as an API server has not got room for at once."""

    def __init__(self, world: World) -> None:
        world.register(WHO, ["read"])
        self.tenant, self.token = world.tenant(WHO), world.tokens[WHO]
        first_ms = time.time_ns() // 1_000_000 - 3_600_000
        self.begin_ts = changes.snapshot_ts(first_ms)
        world.store.put(layout.schema_snap(self.tenant), mixed_rows.schema_snap(self.begin_ts))
        load = changes.Load(CHANGES, SECONDS, rows=True, tenant=self.tenant, first_ms=first_ms)
        self.size = self.end_ts = 0
        for second in changes.seconds(load):
            for key, body in second.files:
                world.store.put(key, body)
                self.size += len(body)
            self.end_ts = second.resolved_ts
        assert self.size >= CHANGES_BYTES, self.size
        with world.services.patient_http() as http:
            consumer = Consumer(world.services.url, self.tenant, http)
            eventually(lambda: self._resolved_ts(consumer) >= self.end_ts)

    def _resolved_ts(self, consumer: Consumer) -> int:
        try:
            return int(consumer.status()["resolved_ts"])
        except Refused:  # nothing is known of it yet
            return 0

    def question(self, form: str, at: float) -> bytes:
        """For all from `at` (a part of the whole) on, as many as an answer may hold."""
        start_ts = self.begin_ts + round((self.end_ts - self.begin_ts) * at)
        path = f"/v1/clusters/{CLUSTER}/tenants/{self.tenant.tenant_id}/changes"
        return request("GET", f"{path}?{query_of(form, start_ts)}".encode(), self.token)


class Asker:
    """A connection that reads nothing. The answer stays in the kernel's buffer; its beginning may be looked at
    there."""

    def __init__(self, url: str, question: bytes) -> None:
        parts = urlsplit(url)
        self._address, self._question = (parts.hostname or "", parts.port or 80), question
        self.status, self.again_at = 0, 0.0
        self.ask()

    def ask(self) -> None:
        """Connect again, and send the request."""
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self._socket.connect(self._address)
        self._socket.setblocking(False)
        self._socket.sendall(self._question)
        self.status = 0

    def look(self) -> int:
        """The status of the answer, once it has come; 0 while there is no answer, and after the status was returned."""
        if self.status:
            return 0
        with suppress(BlockingIOError):
            found = STATUS.match(self._socket.recv(16, socket.MSG_PEEK))
            self.status, self.again_at = int(found[1]) if found else 0, time.monotonic() + AGAIN_S
        return self.status

    @property
    def refused(self) -> bool:
        """And it has waited as long as it was told to."""
        return self.status >= 400 and time.monotonic() >= self.again_at

    def leave(self) -> None:
        """Close the connection without reading."""
        self._socket.close()


class Server:
    """The API server's process, as the kernel counts what it takes."""

    def __init__(self, world: World) -> None:
        [found] = mains([one for one in world.services.alive() if one.role == "api"])
        self._folder = Path(f"/proc/{found.pid}")

    def resident(self) -> int:
        """The resident bytes of the process now."""
        return self._status("VmRSS")

    @contextmanager
    def peak(self) -> Iterator[Callable[[], int]]:
        """The most that was resident since the beginning, as the kernel has noted it: nothing is missed."""
        (self._folder / "clear_refs").write_text("5")
        yield lambda: self._status("VmHWM")

    def cpu_s(self) -> float:
        """Processor time of the process so far, in seconds."""
        fields = (self._folder / "stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status(self, name: str) -> int:
        found = re.search(rf"^{name}:\s+(\d+) kB$", (self._folder / "status").read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1]) << 10


@dataclass(slots=True)
class Taken:
    """By one flood. Bytes: resident `before`, at the `peak` and `after`; `sockets`, what the kernel held at most for
    all connections of the machine, which counts towards a container's limit; `shares` of the memory for pulls.
    `gone_s`: from when the clients left until the last of their answers had ended; processor time of the server in
    windows of `window_s`: before, and from when they left."""

    form: str
    window_s: float
    statuses: Counter[str] = field(default_factory=Counter)
    before: int = 0
    peak: int = 0
    after: int = 0
    sockets: int = 0
    shares: int = 0
    gone_s: float = 0.0
    before_cpu_s: float = 0.0
    after_cpu_s: float = 0.0

    @property
    def problems(self) -> list[str]:
        """Descriptions of what must not have happened: a limit that was exceeded, or a wrong status."""
        found = []
        if self.peak + self.sockets > LIMIT_BYTES:
            found.append(f"{self.peak + self.sockets} bytes at the peak, {LIMIT_BYTES} are allowed")
        if TOLD - self.statuses.keys():
            found.append(f"answered and told to come again should be some: {dict(self.statuses)}")
        if self.statuses.keys() - TOLD:
            found.append(f"answers that should not be: {dict(self.statuses)}")
        return [f"unread {self.form}: {one}" for one in found]


class Flood:
    """All that one format's is: `run` returns what it took, when the process is as it was."""

    def __init__(self, world: World, flooded: Flooded, form: str, seconds: float) -> None:
        self._world, self._flooded, self._seconds = world, flooded, seconds
        self._server, self._log = Server(world), world.services.logs / "api.log"
        self.taken = Taken(form, seconds)
        self._asked = 0

    def run(self, served: Callable[[], Counter[str]]) -> Taken:
        """`served`: how many events somebody else has been served so far, by call: of each there are more meanwhile."""
        taken, server, skipped = self.taken, self._server, self._log.stat().st_size
        taken.before_cpu_s = self._cpu_of_window()
        taken.before = server.resident()
        askers: list[Asker] = []
        try:
            with server.peak() as peak:
                # From different places, so that none is given what was made for another.
                for number in range(CONNECTIONS):
                    question = self._flooded.question(taken.form, number / CONNECTIONS / 3)
                    askers.append(Asker(self._world.services.url, question))
                self._asked, until = len(askers), time.monotonic() + self._seconds + PATIENCE_S
                self._hold(askers, self._seconds)
                while TOLD - self.taken.statuses.keys() and time.monotonic() < until:
                    self._hold(askers, LOOK_S)  # a slow machine has not answered all kinds of them yet
                already = served()
                while not all(served()[call] > count for call, count in already.items()):
                    assert time.monotonic() < until, f"nobody else is served: {already}"
                    self._hold(askers, LOOK_S)
                left_ms = time.time_ns() // 1_000_000
                for asker in askers:
                    asker.leave()
                taken.after_cpu_s = self._cpu_of_window()
                eventually(lambda: len(self._ended_ms(skipped)) >= self._asked)
                taken.gone_s = max(0, max(self._ended_ms(skipped)) - left_ms) / 1000
                taken.peak = peak()
        finally:
            for asker in askers:
                asker.leave()
        eventually(lambda: server.resident() <= taken.before + KEPT_MAX)
        taken.after = server.resident()
        return taken

    def _hold(self, askers: list[Asker], seconds: float) -> None:
        """Who is told to come again does so."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for asker in askers:
                if status := asker.look():
                    self.taken.statuses[str(status)] += 1
                if asker.refused:
                    asker.leave()
                    asker.ask()
                    self._asked += 1
            self.taken.sockets = max(self.taken.sockets, _socket_bytes())
            self.taken.shares = max(self.taken.shares, self._shares())
            time.sleep(LOOK_S)

    def _cpu_of_window(self) -> float:
        before = self._server.cpu_s()
        time.sleep(self._seconds)
        return round(self._server.cpu_s() - before, 1)

    def _shares(self) -> int:
        with self._world.services.http(PATIENCE_S) as http:
            text = http.get(f"{self._world.services.url}/metrics").text
        found = re.search(r"^tistream_api_pull_memory_bytes (\S+)$", text, re.MULTILINE)
        assert found is not None, text[:500]
        return int(float(found[1]))

    def _ended_ms(self, skipped: int) -> list[int]:
        """When each of the tenant's answers had ended, refusals among them."""
        with self._log.open("rb") as log:
            log.seek(skipped)
            lines = log.read().rpartition(b"\n")[0].splitlines()
        told = [json.loads(line) for line in lines if b'"logger":"tistream_api.served"' in line]
        own = [
            line for line in told if line["tenant"] == str(self._flooded.tenant) and line["path"].endswith("/changes")
        ]
        return [round(datetime.fromisoformat(line["ts"]).timestamp() * 1000) for line in own if line["ended"]]


def _socket_bytes() -> int:
    """What TCP's buffers hold, of the whole machine."""
    found = re.search(r"^TCP: .* mem (\d+)", Path("/proc/net/sockstat").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * os.sysconf("SC_PAGE_SIZE")


def markdown(floods: list[Taken]) -> str:
    """The results as a Markdown table."""
    lines = [
        "| format | resident before, MiB | at the peak | kept | in sockets | shares | answered / told to come again "
        "| ended after the clients, s | processor time from then on, s | before, in as long |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in floods:
        sizes = [one.before, one.peak, one.after, one.sockets, one.shares]
        told = f"{one.statuses['200']} / {one.statuses['429']}"
        shown = [*(str(size >> 20) for size in sizes), told, f"{one.gone_s:.2f}"]
        window = f"{one.before_cpu_s:.1f} in {one.window_s:g} s"
        lines.append(f"| {one.form} | {' | '.join(shown)} | {one.after_cpu_s:.1f} | {window} |")
    return "\n".join(lines)
