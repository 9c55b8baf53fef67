"""Runs the platform of a demo, and announces recorded change files to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from tistream.clock import Clock, SystemClock
from tistream.service.lifetime import PARENT_VARIABLE
from tistream.storage import layout
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream_cli.platform.recorded import Recorded
from tistream_client.cli.api_client import ApiClient, tenant_path
from tistream_client.cli.errors import AGAIN, LATER, CliError
from tistream_client.core.errors import ApiError
from tistream_client.core.steps import Answer

_T = TypeVar("_T")
_READY_SECONDS = 600
_STOP_SECONDS = 60
_RESOLVED_SECONDS = 600
_POLL_SECONDS = 0.2
BUSY_SECONDS = 600


def patiently(ask: Callable[[], _T], clock: Clock, pause: Callable[[float], object]) -> _T:
    """Call `ask`, and call it again while it raises an error that says that the caller may try again, for at most
    BUSY_SECONDS. `pause` waits for a number of seconds. Raises ApiError and CliError."""
    deadline_ms = clock.monotonic_ms() + BUSY_SECONDS * 1000
    while True:
        try:
            return ask()
        except (ApiError, CliError) as error:
            later = error.status == AGAIN if isinstance(error, CliError) else isinstance(error, LATER)
            if not later or clock.monotonic_ms() >= deadline_ms:
                raise
        pause(_POLL_SECONDS)


class DemoClient(ApiClient):
    """An ApiClient that repeats a request while the platform is too busy to answer it. All processes of a demo share
    one machine."""

    def answer(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Answer:
        return self._patiently(partial(super().answer, method, path, body))

    def chunks(self, path: str, params: Mapping[str, str]) -> Iterator[bytes]:
        """As in ApiClient. An answer that has begun is not requested again."""

        def begun() -> Iterator[bytes]:
            pieces = ApiClient.chunks(self, path, params)
            return chain(list(islice(pieces, 1)), pieces)

        yield from self._patiently(begun)

    def _patiently(self, ask: Callable[[], _T]) -> _T:
        return patiently(ask, SystemClock(), threading.Event().wait)


def empty_data_dir(data_dir: Path) -> None:
    """Empty the data directory. Raises CliError if it has files but is not a data directory."""
    if data_dir.exists():
        if any(data_dir.iterdir()) and not (data_dir / "lock").exists():
            raise CliError(
                f"--data-dir {data_dir} is not empty, and is not a data directory of tistream: use another one, or "
                "empty it"
            )
        shutil.rmtree(data_dir)


@contextmanager
def platform_of(data_dir: Path, port: int) -> Iterator[str]:
    """Run `tistream up` as a child process for a `with` block. Yields its URL when it is ready."""
    command = [sys.executable, "-m", "tistream_cli", "up", "--data-dir", str(data_dir)]
    process = subprocess.Popen(
        [*command, "--port", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
        start_new_session=True,
    )
    late = threading.Timer(_READY_SECONDS, process.terminate)
    late.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        late.cancel()
        if not line.startswith("ready "):
            raise CliError(f"the platform did not start: its error is above, and in {data_dir / 'logs'}")
        yield line.split()[1]
    finally:
        late.cancel()
        process.terminate()
        try:
            status = process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise CliError(f"the platform did not stop in {_STOP_SECONDS} s: see {data_dir / 'logs'}") from None
    if status != 0:
        raise CliError(f"the platform ended with status {status}: see {data_dir / 'logs'}")


def notification(recorded: Recorded, store_id: int, ts: int) -> dict[str, str]:
    """The body of a request that announces that a store has pushed its files up to `ts`."""
    tenant = recorded.tenant
    return {
        "cluster_id": tenant.cluster_id,
        "tenant_id": tenant.tenant_id,
        "store_id": str(store_id),
        "ts": str(ts),
    }


def push_whole(client: ApiClient, recorded: Recorded, data_dir: Path) -> None:
    """Store the recording's schema_snap, create its tenant, push and announce all files, and wait until all changes
    can be read. Raises CliError if a request fails, or if that takes longer than _RESOLVED_SECONDS."""
    tenant = recorded.tenant
    objects = DirectoryObjectStore(data_dir / "objects")
    objects.put(layout.schema_snap(tenant), recorded.schema_snap)
    client.call("POST", tenant_path(tenant.cluster_id), {"tenant_id": tenant.tenant_id})
    for arrival in recorded.arrivals:
        objects.put(arrival.key, arrival.path.read_bytes())
        client.call("POST", "/v1/notifications", notification(recorded, arrival.store_id, arrival.ts))
    pause = threading.Event()
    status: Any = None
    for _ in range(int(_RESOLVED_SECONDS / _POLL_SECONDS)):
        status = client.call("GET", tenant_path(tenant.cluster_id, tenant.tenant_id, "status"))
        if int(status["resolved_ts"]) >= recorded.end_ts:
            return
        pause.wait(_POLL_SECONDS)
    raise CliError(
        f"the change files were not sorted in {_RESOLVED_SECONDS} s: status.held_by says what is late: {status}"
    )
