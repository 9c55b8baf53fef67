"""The thread pools that a server has made are shut down when it stops."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor

import pytest
from starlette.testclient import TestClient

from support.app_surfaces import apps
from tistream import concurrency
from tistream.clock import SystemClock
from tistream.concurrency import SystemThreads, Thread


class NotedPools(SystemThreads):
    """The system's thread pools, noted. Loops are not started."""

    def __init__(self) -> None:
        self.pools: dict[str, Executor] = {}

    def executor(self, name: str, workers: int) -> Executor:
        self.pools[name] = super().executor(name, workers)
        return self.pools[name]

    def start(self, name: str, body: Callable[[], None]) -> Thread:
        return threading.Thread(target=lambda: None)


@pytest.mark.parametrize("service", ["api", "changefeed"])
def test_a_server_that_stops_shuts_its_thread_pools_down(service: str) -> None:
    noted = NotedPools()
    with concurrency.installed(noted), TestClient(apps(SystemClock())[service]()):
        assert {"refresh", "objects"} <= noted.pools.keys()
    for name, pool in noted.pools.items():
        with pytest.raises(RuntimeError, match="after shutdown"):
            pool.submit(print, name)
