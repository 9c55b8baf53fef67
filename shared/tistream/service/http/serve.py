"""Runs a service: reads settings, starts logs, serves the app with one uvicorn worker, and stops within seconds of
SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import uvicorn
from fastapi import FastAPI

from tistream.service.http.begin import begin, exit_on_settings_error
from tistream.service.http.peer_clients import PeerClients
from tistream.service.http.request_deadline import DeadlinedProtocol
from tistream.service.http.traces import end_traces
from tistream.service.lifetime import end_after
from tistream.service.settings import ServiceSettings, SettingsError

log = logging.getLogger(__name__)

S = TypeVar("S", bound=ServiceSettings)

# How long a connection without requests stays open: longer than clients keep theirs (client.py), so that no request
# meets a connection that is just being closed, and shorter than the deadline of a request.
KEEP_ALIVE_S = 18
_SECONDS_A_LOOK = 10
_BUSY_SECONDS = 1


def run_service(settings_class: type[S], build: Callable[[S], FastAPI]) -> None:
    """The whole `__main__` of a service: read the settings, build the app, and serve it. Call it as
    `run_service(MetaSettings, build_app)`.

    If the settings are invalid, the process exits with status 2 and one line on stderr.
    """
    settings = begin(settings_class)
    with exit_on_settings_error():
        serve(build(settings), settings)


def serve(app: FastAPI, settings: ServiceSettings) -> None:
    """Serve `app` until SIGTERM or SIGINT, then stop. Open requests get shutdown_grace_seconds; the whole stop gets
    shutdown_limit_seconds. Raises SettingsError if these settings do not allow the use of an inherited socket."""
    peers: PeerClients | None = app.state.peers
    context = None if peers is None else peers.certificates.server
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # any client can write X-Forwarded-For, and rejections are counted by address
        http=DeadlinedProtocol,
        ws="none",
        lifespan="on",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=settings.shutdown_grace_seconds,
        ssl_context_factory=None if context is None else lambda _config, _default: context,
    )
    sockets = None if settings.listen_fd is None else [_inherited(settings.listen_fd, settings)]
    try:
        _Server(config, app, settings.shutdown_limit_seconds).run(sockets=sockets)
    finally:
        end_traces()


def _inherited(fd: int, settings: ServiceSettings) -> socket.socket:
    listening = socket.socket(fileno=fd)
    if listening.family in (socket.AF_INET, socket.AF_INET6):
        refusal = settings.refusal_of(listening.getsockname()[0])
        if refusal is not None:
            raise SettingsError(f"the inherited socket {fd}: {refusal}")
    listening.set_inheritable(False)  # a child process (the JVM) must not keep the port
    return listening


class _Server(uvicorn.Server):
    """uvicorn with three changes: a signal first sets app.state.stopping, an orderly end has exit status 0, and the
    server wakes once a second in place of ten times, or every ten seconds while no requests come."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, limit_seconds: int) -> None:
        super().__init__(config)
        self._stopping = app.state.stopping
        self._peers: PeerClients | None = app.state.peers
        self._limit_seconds = limit_seconds
        self._wake: Callable[[], object] = lambda: None  # until main_loop runs

    async def main_loop(self) -> None:
        """Called by uvicorn. Calls on_tick, each second while requests come, and at once after a signal, until it
        returns True."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(woken.set)
        second = requests = 0
        while not await self.on_tick(second):
            rests = self.server_state.total_requests == requests
            requests = self.server_state.total_requests
            pause = _SECONDS_A_LOOK - second % _SECONDS_A_LOOK if rests else _BUSY_SECONDS
            with suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), pause)
            second += pause

    async def on_tick(self, counter: int) -> bool:
        """Every ten seconds, look for new certificates. Returns whether the server ends."""
        if self._peers is not None and counter % _SECONDS_A_LOOK == 0:
            self._peers.certificates.look()
        return await super().on_tick(0)  # at multiples of ten it renews the date of answers

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        yield

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self.should_exit:
            return
        # No logging here: the signal handler may have interrupted a write to the same stream.
        self.should_exit = True
        self._stopping.set()
        end_after(self._limit_seconds)
        self._wake()
