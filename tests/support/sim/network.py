"""HTTP between simulated processes: delayed, lost on the way there or back, said twice, cut off."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

import httpx
from fastapi import FastAPI

from support.sim.asgi import serve_one
from support.sim.scheduler import Fiber, Process, Scheduler

REFUSED_US = 300


@dataclass
class NetworkFaults:
    """The probabilities of faults, for each request."""

    lost: float = 0.0  # the request, or its answer
    twice: float = 0.0
    slow: float = 0.0  # a delay of up to `slow_ms` instead of the everyday one
    slow_ms: int = 3_000


@dataclass
class Network:
    """The simulated network: which process listens where, and which pairs cannot reach each other."""

    scheduler: Scheduler
    faults: NetworkFaults = field(default_factory=NetworkFaults)
    listening: dict[str, tuple[Process, FastAPI]] = field(default_factory=dict)  # "host:port"
    cut: set[frozenset[str]] = field(default_factory=set)  # pairs of names
    alone: set[str] = field(default_factory=set)  # names that nobody can reach, and that reach nobody
    requests: int = 0
    broken_answers: list[Exception] = field(default_factory=list)
    may_die: Callable[[Process], None] = lambda _process: None  # may end a process that sends or has its answer

    def delay_us(self) -> int:
        rng = self.scheduler.rng
        if rng.random() < self.faults.slow:
            return rng.randrange(self.faults.slow_ms * 1_000)
        return rng.randrange(200, 3_000)

    def separated(self, one: Process, other: Process) -> bool:
        alone = one.name in self.alone or other.name in self.alone
        return alone or frozenset((one.name, other.name)) in self.cut

    def lost(self) -> bool:
        return self.scheduler.rng.random() < self.faults.lost


class _Exchange:
    """One request under way: what has come back of its answer, for the fiber that waits for it."""

    def __init__(self, network: Network, client: Fiber, server: Process) -> None:
        self._network, self._client, self.server = network, client, server
        self.messages: deque[dict[str, Any] | None] = deque()  # None: the connection broke
        self.closed = False
        self._waits = False

    def deliver(self, message: dict[str, Any] | None) -> None:
        """Something reaches the client. In the scheduler's own context."""
        self.messages.append(message)
        if self._waits:
            self._network.scheduler.wake(self._client)

    def next(self, timeout_s: float | None) -> dict[str, Any]:
        """Wait for the next message. Raises httpx.ReadTimeout, httpx.ReadError."""
        scheduler = self._network.scheduler
        deadline_us = None if timeout_s is None else scheduler.now_us + int(timeout_s * 1e6)
        while not self.messages:
            if not self.server.alive:
                scheduler.sleep(REFUSED_US)
                if not self.messages:
                    raise httpx.ReadError("connection reset by peer")
                break
            left_us = None if deadline_us is None else deadline_us - scheduler.now_us
            if left_us is not None and left_us <= 0:
                raise httpx.ReadTimeout("timed out")
            # Looks up now and then: nobody tells it that the peer has died.
            self._waits = True
            scheduler.park(min(500_000, left_us) if left_us is not None else 500_000)
            self._waits = False
        message = self.messages.popleft()
        if message is None:
            raise httpx.ReadError("connection reset by peer")
        return message


class _Body(httpx.SyncByteStream):
    def __init__(self, exchange: _Exchange, timeout_s: float | None) -> None:
        self._exchange, self._timeout_s = exchange, timeout_s

    def __iter__(self) -> Iterator[bytes]:
        more = True
        while more:
            message = self._exchange.next(self._timeout_s)
            more = message.get("more_body", False)
            if message.get("body"):
                yield message["body"]

    def close(self) -> None:
        self._exchange.closed = True


class SimTransport(httpx.BaseTransport):
    """The HTTP transport of one process."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network, self._process = network, process

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        network, scheduler = self._network, self._network.scheduler
        if scheduler.running() is None:  # a process says its last words while the world is taken down
            raise httpx.ConnectError("connection refused")
        network.requests += 1
        timeouts = request.extensions.get("timeout", {})
        read_s = timeouts.get("read")
        body = request.read()
        address = f"{request.url.host}:{request.url.port}"
        scheduler.sleep(REFUSED_US)
        network.may_die(self._process)
        process, app = network.listening.get(address, (None, None))
        if process is None or app is None or not process.alive:
            raise httpx.ConnectError("connection refused")
        exchange = _Exchange(network, scheduler.fiber(), process)
        for copy in range(2 if scheduler.rng.random() < network.faults.twice else 1):
            if not network.separated(self._process, process) and not network.lost():
                self._send(exchange, app, request, body, answered=copy == 0)
        start = exchange.next(read_s)
        network.may_die(self._process)
        return httpx.Response(start["status"], headers=start["headers"], stream=_Body(exchange, read_s))

    def _send(self, exchange: _Exchange, app: FastAPI, request: httpx.Request, body: bytes, *, answered: bool) -> None:
        """The request travels; where it arrives, a fiber of the server answers it. A copy's answer reaches nobody."""
        network, scheduler, server = self._network, self._network.scheduler, exchange.server
        raw_path, _, query = request.url.raw_path.partition(b"?")
        headers = [(name.lower(), value) for name, value in request.headers.raw]
        answer_is_lost = not answered or network.lost()

        def send(message: dict[str, Any]) -> None:
            nonlocal answer_is_lost
            if exchange.closed:
                if message.get("more_body"):  # a stream is cancelled; the rest of an answer goes nowhere, as in uvicorn
                    raise OSError("the client has gone")
                return
            # TCP delivers nothing of a connection behind a segment that it has lost.
            answer_is_lost = answer_is_lost or network.separated(self._process, server)
            if not answer_is_lost:
                scheduler.after(last_us(), lambda: exchange.deliver(message))

        at_us = scheduler.now_us

        def last_us() -> int:  # the parts of one answer stay in order
            nonlocal at_us
            at_us = max(at_us + 1, scheduler.now_us + network.delay_us())
            return at_us - scheduler.now_us

        def body_of_fiber() -> None:
            try:
                serve_one(app, request.method, unquote_to_bytes(raw_path), query, headers, body, send)
            except Exception as error:  # the answer had begun: uvicorn closes the connection and says so
                network.broken_answers.append(error)
                exchange.deliver(None)

        def arrive() -> None:
            if server.alive:
                scheduler.start(server, "request", body_of_fiber)

        scheduler.after(network.delay_us(), arrive)
