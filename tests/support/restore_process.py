"""A restore in a process of its own, which is killed by SIGKILL. The test's process is its meta server: it claims the
restore, and stores the reports that the process sends."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from random import Random

from support.restore_runs import ACME, Process, RestoreRuns
from tistream.pool.versions.plan import IndexShard
from tistream.schema.history import History
from tistream.storage.open import open_objects
from tistream.wire.bulk.restores import RestoreReport, RestoreWork
from tistream_ingest.restore.allowed import AllowedTargets
from tistream_ingest.restore.mysql_chunks import MySqlChunks
from tistream_ingest.restore.object_targets import ParquetObjects
from tistream_ingest.restore.restore_attempt import RestoreAttempt
from tistream_ingest.restore.tenants import TenantReads

NEXT_CHUNK = "next chunk"
_WITHIN_S = 0.1  # a kill comes so long after a chunk was begun, or when the process waits to begin the next one


@dataclass(frozen=True)
class Order:
    """What a process needs. `pool`: the URL of a directory, because what is in memory dies with the process."""

    work: RestoreWork
    pool: str
    history: History
    end_ts: int
    shards: list[IndexShard]
    allowed: AllowedTargets
    chunk_rows: int


def attempt(order: Order, meta: Connection) -> None:
    """The main function of the process: one attempt. It asks before each chunk, so that the test can count chunks."""
    ParquetObjects.chunk_rows = MySqlChunks.chunk_rows = order.chunk_rows
    objects = open_objects(order.pool)

    def ask(what: str | RestoreReport) -> None:
        meta.send(what)
        meta.recv()

    reads = TenantReads(lambda _: order.history, lambda _: (order.end_ts, order.shards))
    process = Process(objects, meanwhile=partial(ask, NEXT_CHUNK))
    RestoreAttempt(order.work, objects, reads, process, order.allowed, ask).attempt()


@dataclass
class Killing:
    """Attempts at a restore, one after the other; at most one restore is queued."""

    runs: RestoreRuns
    chunk_rows: int
    rng: Random

    def __post_init__(self) -> None:
        self.pool = f"file://{self.runs.folder}/pool"
        pool, memory = open_objects(self.pool), self.runs.points.world.objects
        for one in memory.list_after("committed/"):
            pool.put(one.key, memory.get(one.key))

    def killed(self, at: int) -> bool:
        """An attempt that is killed while it writes its `at`th chunk, or after it; False if it ended before."""
        return self._attempt(at) == -signal.SIGKILL

    def whole(self) -> int:
        """An attempt to its end; its exit status."""
        return self._attempt(None)

    def _attempt(self, at: int | None) -> int:
        claimed = self.runs.claim()
        points = self.runs.points
        order = Order(
            claimed.work,
            self.pool,
            points.world.history,
            points.world.end_ts,
            list(points.reads.shards()),
            self.runs.allowed(),
            self.chunk_rows,
        )
        spawning = multiprocessing.get_context("spawn")
        meta, far = spawning.Pipe()
        process = spawning.Process(target=attempt, args=(order, far), daemon=True)
        process.start()
        far.close()  # else the pipe does not end with the process
        assert process.pid is not None
        try:
            # The process has ended, by itself or killed: with an answer that it did not read, or with none to read.
            with suppress(EOFError, ConnectionResetError, BrokenPipeError):
                kill = partial(os.kill, process.pid, signal.SIGKILL)
                self._serve(meta, claimed.work.wanted.restore_id, kill, at)
        finally:
            meta.close()
            process.join()
        self.runs.lease_ends()
        assert process.exitcode is not None
        return process.exitcode

    def _serve(self, meta: Connection, restore_id: str, kill: Callable[[], None], at: int | None) -> None:
        """Be the meta server of the process until it has ended. Raises EOFError then."""
        begun = 0
        while True:
            message = meta.recv()
            if message == NEXT_CHUNK:
                begun += 1
            else:
                self.runs.book.report(ACME, restore_id, message)
            meta.send(None)
            if begun == at:
                meta.poll(self.rng.uniform(0, _WITHIN_S))
                kill()
                while True:
                    meta.recv()  # what it has sent and gets no answer to; then the pipe ends
