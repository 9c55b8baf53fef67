"""A log backup released by the adapter: planned, read, sorted and written by Spark, as in the ingest service."""

from __future__ import annotations

import itertools

from bench.inputs.log_bucket import START_TS
from tistream.clock import SystemClock
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.change_reader import open_change_file
from tistream.storage.open import open_existing, open_objects
from tistream_ingest.jobs.run import SparkRunner
from tistream_ingest.jobs.session import build_session
from tistream_ingest.jobs.work import PoolShards
from tistream_ingest.source.bucket import Bucket
from tistream_ingest.source.source import SourceIdentity, SourceRunner


class EmptyPool:
    """The pool of a tenant that has no row from before the log."""

    def reached_ts(self) -> int:
        """Nothing has to be waited for."""
        return START_TS

    def current(self) -> PoolShards:
        """No versions."""
        return PoolShards((), START_TS)


class LogReleases:
    """Calls release the whole log, each for a tenant of its own. A call returns the rows of the change files."""

    def __init__(self, log_url: str, objects_url: str, master: str) -> None:
        self._log_url, self._objects = log_url, open_objects(objects_url)
        self._runner = SparkRunner(build_session(master, "bench", {}), objects_url)
        self._runner.warm()
        self._tenants = itertools.count(1)

    def __call__(self) -> int:
        tenant = TenantKey("7", f"logged-{next(self._tenants)}")
        identity = SourceIdentity("log-1", tenant, self._log_url, START_TS, False)
        bucket, announced = Bucket(open_existing(self._log_url)), list[int]()

        def announce(_tenant: TenantKey, _store_id: int, ts: int) -> None:
            announced.append(ts)

        source = SourceRunner(identity, bucket, self._objects, EmptyPool(), self._runner, SystemClock(), announce)
        while source.step():
            pass
        files = (open_change_file(self._objects, layout.change_file(tenant, 0, ts)) for ts in announced)
        return sum(group.rows for file in files for group in file.change_groups)

    def close(self) -> None:
        """Stop Spark."""
        self._runner.close()
